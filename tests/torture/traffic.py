"""Clients that hold one thing after another, and the ledger of what they were told."""

import asyncio
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import aiohttp

from tests.process.server import PATIENCE_S, Line, Server, eventually

CLIENTS = 16
SOON_S, LATE_S = 1, 3600
_AFTER_A_REFUSAL_S = 0.01


class Refusal(NamedTuple):
    """An answer that is no 201."""

    reservation_id: str
    status: int
    retry_after: str | None
    document: Any

    @property
    def code(self) -> str:
        return str(self.document.get("code"))


class Ledger:
    """What was said about one database over all its lives: by answers, and by the log.

    Each ID is held once, so what was said about it stays true but for its expiry. While the ledger
    is closed nothing that is said binds anybody; it is only counted.
    """

    def __init__(self) -> None:
        self.acknowledged: dict[str, Line] = {}
        self.announced: set[str] = set()
        self.unanswered: set[str] = set()
        self.refused: list[Refusal] = []
        self.unseen: list[str] = []
        self.is_closed = False
        self.said_while_closed = 0
        self.ids = (f"load-{number:07}" for number in itertools.count())

    def hold(self, server: Server, ttl_seconds: int) -> Line:
        """Hold one thing more, which must be possible."""
        held = server.hold(next(self.ids), ttl_seconds)
        self.acknowledge(held)
        return held

    def acknowledge(self, held: Line) -> None:
        """Write down what a client was told."""
        if self.is_closed:
            self.said_while_closed += 1
        else:
            self.acknowledged[held["reservationId"]] = held

    def take_announcements(self, server: Server) -> None:
        """Remember the expiries that the log of the server's present run has told."""
        ok = server.seen("reservation-alarm", outcome="ok")
        self.announced.update(line["reservationId"] for line in ok)

    def refusals(self) -> Counter[str]:
        return Counter(refusal.code for refusal in self.refused)

    def soon(self) -> list[Line]:
        """The acknowledged holds that end soon."""
        return [
            held
            for held in self.acknowledged.values()
            if held["expiresAt"] - held["createdAt"] <= SOON_S * 1000
        ]

    def lost(self, server: Server) -> Iterator[str]:
        """What was said and is not in the database, in one sentence each."""
        rows = server.query("SELECT id, created_at, expires_at, status FROM reservation")
        kept = {name: rest for name, *rest in rows}
        for name, held in self.acknowledged.items():
            if kept.get(name, [])[:2] != [held["createdAt"], held["expiresAt"]]:
                yield f"{name} was acknowledged and is lost: {kept.get(name)}"
        for name in self.announced:
            if kept.get(name, [])[2:] != ["expired"]:
                yield f"{name} was said to have expired, and has not: {kept.get(name)}"

    def untrue(self, server: Server) -> Iterator[str]:
        """What was refused as unchanged and is in the database all the same."""
        names = {name for (name,) in server.query("SELECT id FROM reservation")}
        for refusal in self.refused:
            if refusal.code != "outcome-unknown" and refusal.reservation_id in names:
                yield f"{refusal.reservation_id} was refused as {refusal.code} and is there"

    def forget(self, server: Server) -> None:
        """Leave out what is lost, so that each loss is counted once."""
        rows = server.query("SELECT id, status FROM reservation")
        kept = dict(rows)
        self.acknowledged = {name: row for name, row in self.acknowledged.items() if name in kept}
        self.announced = {name for name in self.announced if kept.get(name) == "expired"}


class Traffic:
    """Within `with`, clients hold on a thread of their own; one that loses its server goes home.

    Those who read look for each hold once they were told of it.
    """

    def __init__(
        self,
        server: Server,
        ledger: Ledger,
        *,
        clients: int = CLIENTS,
        ttl_seconds: Sequence[int] = (SOON_S, LATE_S),
        is_reading: bool = False,
    ) -> None:
        self.acknowledged = 0
        self.latencies_ms: list[float] = []
        self._server = server
        self._ledger = ledger
        self._clients = clients
        self._ttl_seconds = ttl_seconds
        self._is_reading = is_reading
        self._is_over = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive(), "clients hang"

    def wait_for(self, acknowledged: int) -> None:
        """Until so many holds were acknowledged, or nobody is left to ask."""
        eventually(lambda: self.acknowledged >= acknowledged or not self._thread.is_alive())

    async def _run(self) -> None:
        async with (
            aiohttp.ClientSession(
                f"http://127.0.0.1:{self._server.port}",
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(PATIENCE_S),
            ) as session,
            asyncio.TaskGroup() as clients,
        ):
            for _ in range(self._clients):
                clients.create_task(self._hold_until_over(session))

    async def _hold_until_over(self, session: aiohttp.ClientSession) -> None:
        while not self._is_over:
            reservation_id = next(self._ledger.ids)
            try:
                await self._hold(session, reservation_id)
            except (aiohttp.ClientError, OSError):  # a time-out is one of them
                self._ledger.unanswered.add(reservation_id)
                return

    async def _hold(self, session: aiohttp.ClientSession, reservation_id: str) -> None:
        body = {"ttlSeconds": random.choice(self._ttl_seconds)}
        began = time.monotonic()
        async with session.post(f"/reservations/{reservation_id}", json=body) as answer:
            document = await answer.json(content_type=None)
        if answer.status == 201:
            self._ledger.acknowledge(document)
            self.acknowledged += 1
            self.latencies_ms.append((time.monotonic() - began) * 1000)
            if self._is_reading:
                await self._read(session, document)
            return
        self._ledger.refused.append(
            Refusal(reservation_id, answer.status, answer.headers.get("Retry-After"), document)
        )
        await asyncio.sleep(_AFTER_A_REFUSAL_S)

    async def _read(self, session: aiohttp.ClientSession, held: Line) -> None:
        async with session.get(f"/reservations/{held['reservationId']}") as answer:
            read = await answer.json(content_type=None)
        if (answer.status, read.get("createdAt")) != (200, held["createdAt"]):
            self._ledger.unseen.append(held["reservationId"])
