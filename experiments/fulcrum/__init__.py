"""What strategies for relations cost: the setting of Boyer and Griswold's Fulcrum (semantics §7), and ships.

`campus` makes up the people, `overlay` is the brokers, `engine` runs a strategy over two tracks and `together` over all
that share rings (`subject` is their protocol, the reference), `count` adds up, `setting` is what is compared; `laws`,
`sea` and `late` are experiments of their own.
"""
