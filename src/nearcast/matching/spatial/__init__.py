"""Atoms that compare geometries, decided for an event until the work that is allowed for it is done."""
