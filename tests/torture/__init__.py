"""Attacks on the service's promises: `python -m tests.torture` runs them and prints their figures.

Every module with a `HARNESS` takes part; nothing else has to know of it.
"""
