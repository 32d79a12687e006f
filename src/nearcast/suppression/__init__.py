"""Which reports need not enter the journal, and which need not even be sent."""
