"""Who is in which zone: a static set of polygons held against the positions that come in (semantics §7)."""
