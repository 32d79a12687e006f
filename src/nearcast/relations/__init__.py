"""Relations between entities: predicates, the plain reference, and the stage that evaluates them (semantics §7)."""
