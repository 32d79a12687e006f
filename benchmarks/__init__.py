"""How fast nearcast is, against what a user would use instead. Each prints its ratio and its machine."""
