"""Which relations hear the same at the same time, by scope and lateness, and how they go on beside one another."""
