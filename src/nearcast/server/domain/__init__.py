"""Access servers of one domain: who there is, which has which session, and how sessions move."""
