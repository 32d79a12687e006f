"""nearcast delivers every event to whom it concerns, at the priority the receiver's situation calls for."""

__all__ = ["__version__"]

__version__ = "0.1.0"
