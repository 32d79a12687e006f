"""How many entities there are of a filter: reports that count, and counts around situations."""
