"""Which reports must travel for a relation to be decided as if all did (SEMANTICS §7).

`seam` is what a strategy is and how to write one, `choice` finds it by name. `side` is the protocol at an entry node,
`node` that of a node to which everything travels, `subject` joins the pairs of one subject, `trial` runs them together.
"""
