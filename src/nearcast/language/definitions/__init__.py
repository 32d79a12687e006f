"""Definitions as documents: clients, subscriptions, settings, relations, situations, ontologies."""
