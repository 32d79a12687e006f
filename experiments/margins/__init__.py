"""Context classes of links as they were measured: how often they change, with a margin and without."""
