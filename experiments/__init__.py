"""Published settings, run again: `python -m experiments NAME` prints the papers' figures beside ours."""
