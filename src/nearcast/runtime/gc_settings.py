"""How seldom Python looks for cycles among objects that stay."""

GC_THRESHOLDS = (100_000, 50, 100)
"""For `gc.set_threshold`, where millions of objects are known: looking through all of them as often as Python does by
itself takes a third of the time of inferring situations, and half a second each time a hundred thousand filters do."""
