"""Ordered, kept logs behind one small seam; the state of the system is a fold over them."""
