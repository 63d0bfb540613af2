"""A bounded load of holds that a kill -9 ends, and what was acknowledged until then."""

import asyncio
import itertools
import random
import signal

import aiohttp

from tests.process.server import Line, Server

CONNECTIONS = 48
LOAD_SECONDS_MAX = 10.0
SHORT_S, LONG_S = 1, 3600


class Load:
    """Clients that hold one thing after another, each thing once."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, Line] = {}
        self.unanswered: set[str] = set()
        self._ids = (f"load-{number}" for number in itertools.count())

    def kill_in_the_middle(self, server: Server) -> None:
        """Kill the server once some hundred holds were acknowledged and others are under way."""
        goal = len(self.acknowledged) + random.randint(200, 1000)
        asyncio.run(self._run(server, goal))
        assert server.wait() == -signal.SIGKILL

    def short(self) -> list[Line]:
        """The acknowledged holds that end soon."""
        return [
            held
            for held in self.acknowledged.values()
            if held["expiresAt"] == held["createdAt"] + SHORT_S * 1000
        ]

    async def _run(self, server: Server, goal: int) -> None:
        url, unbounded = f"http://127.0.0.1:{server.port}", aiohttp.TCPConnector(limit=0)
        async with (
            asyncio.timeout(LOAD_SECONDS_MAX),
            aiohttp.ClientSession(url, connector=unbounded) as session,
            asyncio.TaskGroup() as clients,
        ):
            for _ in range(CONNECTIONS):
                clients.create_task(self._hold_until_killed(session, server, goal))

    async def _hold_until_killed(
        self, session: aiohttp.ClientSession, server: Server, goal: int
    ) -> None:
        for reservation_id in self._ids:
            body = {"ttlSeconds": random.choice((SHORT_S, LONG_S))}
            try:
                async with session.post(f"/reservations/{reservation_id}", json=body) as answer:
                    assert answer.status == 201
                    self.acknowledged[reservation_id] = await answer.json()
            except aiohttp.ClientError:
                self.unanswered.add(reservation_id)
                return
            if len(self.acknowledged) == goal:
                server.send(signal.SIGKILL)
