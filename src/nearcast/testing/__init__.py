"""For tests of plug-ins: a strategy tried on a trace (`strategies`), by the protocol at entry nodes (`entry_node`)."""
