"""Which request is being answered: its ID goes with everything that is said meanwhile."""

from contextvars import ContextVar

REQUEST_ID_HEADER = "X-Request-ID"

REQUEST_ID: ContextVar[str | None] = ContextVar("REQUEST_ID", default=None)
"""None outside of requests: nobody in particular made the alarm clock do what it does."""
