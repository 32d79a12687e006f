"""Few filters forwarded for many, and few of many looked at for one event."""
