"""The client library: publish events, and receive each delivery once, in order, across reconnections."""
