"""Geometries of both sides in the predicates of relations: whose may meet, and what comparing them may take."""
