"""Matching: which filters an event satisfies; few filters by rows of bits, many by an engine."""
