"""The headers that every answer has, whatever it is: a page, a problem, a stream."""

from multidict import CIMultiDict

OF_ALL = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Server": "reservation-service",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""What every answer has, unless it has its own. Which versions run here is nobody's business."""


def finish(headers: CIMultiDict[str], now: int) -> None:
    """Add them; `now` is service time, epoch ms."""
    headers["Server-Time"] = str(now)
    headers.merge(OF_ALL)
