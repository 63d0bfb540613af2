"""The two calls that a shop's own server makes at the reservation service.

A browser must not confirm what it has not paid, and a tab that was closed cannot wait.
"""

from dataclasses import dataclass
from typing import Any

import aiohttp

CALL_SECONDS_MAX = 5.0

_NOT_FINAL = {401, 408, 429}
"""Slow, too often, or a key that somebody has yet to set right: no reason to refund anybody."""


class NoAnswer(Exception):
    """Nobody knows whether it happened. Every call may be repeated with the same holder."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service decided; `sentence` is its own reason for a refusal."""

    is_done: bool
    sentence: str | None


class Reservations:
    """Calls the service at `session`'s base URL; raises NoAnswer when the outcome is unknown."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def confirm(self, reservation_id: str, holder: str) -> Answer:
        """Keep it for good: also after the deadline, as long as nobody else has taken it."""
        return await self._post(
            f"/reservations/{reservation_id}/confirm", {"holder": holder, "ifStillFree": True}
        )

    async def release(self, reservation_id: str, holder: str, generation: int) -> Answer:
        """Give back this one hold, and no later one of the same holder."""
        return await self._post(
            f"/reservations/{reservation_id}/release",
            {"holder": holder, "generation": generation},
        )

    async def _post(self, path: str, body: dict[str, Any]) -> Answer:
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS_MAX)
        try:
            async with self._session.post(path, json=body, timeout=timeout) as answer:
                if answer.status >= 500 or answer.status in _NOT_FINAL:  # noqa: PLR2004
                    raise NoAnswer
                document = await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise NoAnswer from error
        return Answer(answer.ok, document.get("detail"))
