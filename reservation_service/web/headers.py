"""The headers that every answer has, whatever it is: a page, a problem, a stream."""

from collections.abc import MutableMapping

from reservation_service.correlation import REQUEST_ID, REQUEST_ID_HEADER

OF_ALL = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Server": "reservation-service",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""What every answer has. Which versions run here is nobody's business."""

NO_CONTENT_RUNS = "default-src 'none'; frame-ancestors 'none'"
"""The policy of every answer that has none of its own."""


def finish(headers: MutableMapping[str, str], now: int) -> None:
    """Add them; `now` is service time, epoch ms."""
    headers["Server-Time"] = str(now)
    headers.update(OF_ALL)
    headers.setdefault("Content-Security-Policy", NO_CONTENT_RUNS)
    if (request_id := REQUEST_ID.get()) is not None:
        headers[REQUEST_ID_HEADER] = request_id
