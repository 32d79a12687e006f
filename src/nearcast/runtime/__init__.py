"""What the parts need of the machine beneath them: files that one process at a time holds, pauses between attempts."""
