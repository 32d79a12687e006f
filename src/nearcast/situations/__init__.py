"""Situations: what rules conclude from the readings around a place (SEMANTICS §8)."""
