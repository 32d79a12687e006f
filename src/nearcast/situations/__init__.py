"""Situations: what rules conclude from the readings around a place (semantics §8)."""
