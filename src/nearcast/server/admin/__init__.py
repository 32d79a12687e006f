"""Managing clients, subscriptions, settings, relations and rules over HTTP."""
