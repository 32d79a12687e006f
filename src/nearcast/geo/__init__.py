"""Distances, shapes, and what is near: an index for things that move, and one for columns."""
