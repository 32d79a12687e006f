"""A foraging node for a device or gateway: an event loop around `foraging`, without Spark or server."""
