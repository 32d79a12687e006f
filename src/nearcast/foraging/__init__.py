"""Nodes that ask each other for context: requestor, relay and provider, messages in, messages out (semantics §8)."""
