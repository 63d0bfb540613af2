"""Engines behind the store port, and the group commit that they share."""
