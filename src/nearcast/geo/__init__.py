"""Where things are: distances, shapes, and what is near."""
