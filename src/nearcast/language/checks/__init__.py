"""Checking files: their faults, and what is hardly meant, also with events beside definitions."""
