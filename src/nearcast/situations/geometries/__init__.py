"""Geometries of readings in the conditions of rules: what is around them, and what comparing them may take."""
