"""Answers, and the headers that every one of them has: a document, a problem, a page, a stream.

Nearly every answer is a short document whose head differs from others' in few lines. The same
lines are put together once for all, and head and body go out in one write; aiohttp's own Response
makes each head from a dictionary, which costs about a third of a small request.
"""

from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus

from aiohttp import hdrs, web
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import HttpVersion11

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

JSON_TYPE = "application/json"

_POLICY = "Content-Security-Policy"
_TEMPLATES_MAX = 256


class Answer(web.StreamResponse):
    """An answer whose body is whole; `headers` are those that only some answers have.

    Length and type are not among `headers`, nor is what `finish` adds to every answer.
    """

    def __init__(
        self,
        body: bytes,
        *,
        status: int = 200,
        content_type: str = JSON_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status=status, headers=headers)
        self.body = body
        self.media_type = content_type
        self.server_time = 0

    async def _prepare_headers(self) -> None:
        """What the head depends on; hooks may add headers until it is written."""
        assert self._req is not None
        if self._keep_alive is None:
            self._keep_alive = self._req.keep_alive

    async def _write_headers(self) -> None:
        """The head, and the body with it."""
        assert self._req is not None
        assert self._payload_writer is not None
        version = self._req.version
        own = ""
        for name, value in self._headers.items():
            if "\r" in value or "\n" in value:
                raise ValueError(f"A line break in the header {name} would begin another one.")
            own += f"{name}: {value}\r\n"
        if (request_id := REQUEST_ID.get()) is not None:
            own += f"{REQUEST_ID_HEADER}: {request_id}\r\n"
        if self._keep_alive is not (version == HttpVersion11):
            own += f"Connection: {'keep-alive' if self._keep_alive else 'close'}\r\n"
        head = (
            f"HTTP/{version.major}.{version.minor} {_template(self.status, self.media_type)}"
            f"Content-Length: {len(self.body)}\r\n"
            f"Server-Time: {self.server_time}\r\n"
            f"Date: {rfc822_formatted_time()}\r\n"
            f"{own}\r\n"
        ).encode()
        await self._payload_writer.write(head if self._must_be_empty_body else head + self.body)
        await self._payload_writer.drain()


@lru_cache(_TEMPLATES_MAX)
def _template(status: int, content_type: str) -> str:
    """What all answers of one kind begin with, from the status on."""
    headers = {hdrs.CONTENT_TYPE: content_type, _POLICY: NO_CONTENT_RUNS, **OF_ALL}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{status} {HTTPStatus(status).phrase}\r\n{lines}"


def finish(answer: web.StreamResponse, now: int) -> None:
    """Add what every answer has; `now` is service time, epoch ms."""
    if isinstance(answer, Answer):
        answer.server_time = now  # the others are written with the head
        return
    headers = answer.headers
    headers["Server-Time"] = str(now)
    headers.update(OF_ALL)
    headers.setdefault(_POLICY, NO_CONTENT_RUNS)
    if (request_id := REQUEST_ID.get()) is not None:
        headers[REQUEST_ID_HEADER] = request_id
