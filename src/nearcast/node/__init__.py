"""A foraging node for a device or gateway: an event loop around `decision/foraging`, without Spark or server."""
