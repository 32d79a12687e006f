"""Aggregates over a time in the predicates of relations: AVG(a.speed, 5 min), and when they change by themselves."""
