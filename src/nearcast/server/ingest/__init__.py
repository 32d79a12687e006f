"""Where events come in: HTTP, group commit, leases, and what publishers need not send."""
