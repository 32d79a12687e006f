"""What is known as a fold over the journal: registry, repository, timelines, previous values."""
