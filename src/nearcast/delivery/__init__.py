"""From groups to clients: who gets an event, at which priority, in which order, how fast."""
