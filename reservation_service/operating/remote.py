"""A running service, asked over HTTP; whatever goes wrong is told in one sentence."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec

from reservation_service.errors import StartupError

SECONDS_MAX = 10.0
"""How long one answer may take."""

KEY_VARIABLE = "RESERVATION_SERVICE_KEY"

_MS_PER_SECOND = 1000

Query = Mapping[str, str | int | Sequence[str]]


class RemoteError(StartupError):
    """The service cannot be asked, or refuses; the message is the sentence for the operator."""


class NotServed(RemoteError):
    """There is nothing at this path."""


class Remote:
    """The service at `url`, asked with `key`, None for none; use it as a context."""

    def __init__(self, url: str, key: str | None) -> None:
        if not _is_address(url):
            raise RemoteError(f"{url!r} is no address; it looks like http://host:8787.")
        self._url = url.rstrip("/")
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._session: aiohttp.ClientSession | None = None
        self.now_ms = 0
        """The service's time at its last answer."""

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=SECONDS_MAX)
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=timeout)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def text(self, path: str) -> str:
        """What is at this path. Raises RemoteError."""
        return (await self._fetch(path, {}, frozenset({HTTPStatus.OK}))).decode()

    async def document(
        self, path: str, query: Query | None = None, *, also: int | None = None
    ) -> Any:
        """The JSON at this path, of a 200 or the status that is fine `also`. Raises RemoteError."""
        body = await self._fetch(
            path, query or {}, frozenset({HTTPStatus.OK, also or HTTPStatus.OK})
        )
        return self._decoded(body)

    async def lines(
        self, path: str, query: Query, headers: Mapping[str, str]
    ) -> AsyncIterator[str]:
        """The lines of a stream, until it ends. Raises RemoteError."""
        assert self._session is not None
        with self._sentences():
            async with self._session.get(
                self._url + path, params=query, headers=headers, allow_redirects=False
            ) as answer:
                if answer.status != HTTPStatus.OK:
                    self._refuse(answer.status, await answer.read(), path)
                async for line in answer.content:
                    yield line.decode("utf-8", "replace").rstrip("\r\n")

    async def _fetch(self, path: str, query: Query, fine: frozenset[int]) -> bytes:
        assert self._session is not None
        with self._sentences():
            async with (
                asyncio.timeout(SECONDS_MAX),
                self._session.get(self._url + path, params=query, allow_redirects=False) as answer,
            ):
                body = await answer.read()
                if answer.status not in fine:
                    self._refuse(answer.status, body, path)
                with contextlib.suppress(ValueError):
                    self.now_ms = int(answer.headers.get("Server-Time", ""))
                return body

    @contextlib.contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise RemoteError(
                f"{self._url} did not answer within {SECONDS_MAX:g} s; the process may hang."
            ) from error
        except aiohttp.ClientConnectorError as error:
            raise RemoteError(
                f"Nothing listens at {self._url} ({error.strerror or error}): "
                "the service is down, or it is elsewhere (--url)."
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise RemoteError(
                f"The connection to {self._url} broke ({type(error).__name__}); "
                "look at the service's log."
            ) from error

    def _refuse(self, status: int, body: bytes, path: str) -> None:
        told = self._problem(body)
        if status == HTTPStatus.UNAUTHORIZED:
            raise RemoteError(
                f"{self._url} wants another key ({told}): set {KEY_VARIABLE}, or name its file "
                "with --key-file."
            )
        if status == HTTPStatus.NOT_FOUND:
            raise NotServed(f"{self._url} has no {path}: {told}")
        if status == HTTPStatus.GONE:
            raise RemoteError(f"The namespace at {self._url} was destroyed.")
        raise RemoteError(f"{self._url} answered {status}: {told}")

    def _problem(self, body: bytes) -> str:
        try:
            detail = msgspec.json.decode(body)["detail"]
        except (msgspec.DecodeError, KeyError, TypeError):
            return "this is no reservation service"
        return str(detail).encode("unicode_escape").decode()

    def _decoded(self, body: bytes) -> Any:
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise RemoteError(f"{self._url} is no reservation service.") from error


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
