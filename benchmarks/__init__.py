"""How fast the service is, measured beside the limits of its parts: `make bench`.

Every figure stands beside a reference from the same round, since nothing else can be compared
between machines. How to read them is in docs/performance.md.
"""
