"""The service's named events, kept, and points that a test can wait for."""

from dataclasses import dataclass
from typing import Any

from tests.support.waiting import Signal


@dataclass(frozen=True, slots=True)
class Observed:
    """One call of `observe`."""

    name: str
    fields: dict[str, Any]

    def matches(self, name: str, fields: dict[str, object]) -> bool:
        return self.name == name and fields.items() <= self.fields.items()


class Recorder:
    """`observe` keeps every event; `seen` waits for them by name and fields."""

    def __init__(self) -> None:
        self.events: list[Observed] = []
        self._changed = Signal()

    def observe(self, name: str, **fields: object) -> None:
        self.events.append(Observed(name, fields))
        self._changed.notify()

    def of(self, name: str, **fields: object) -> list[dict[str, Any]]:
        """The fields of every such event so far, in order."""
        return [event.fields for event in self.events if event.matches(name, fields)]

    async def seen(self, name: str, *, count: int = 1, **fields: object) -> list[dict[str, Any]]:
        """Wait until at least `count` such events were observed, and return them all."""
        await self._changed.until(
            lambda: len(self.of(name, **fields)) >= count,
            lambda: f"{count} x {name} {fields}; there is {[e.name for e in self.events]}",
        )
        return self.of(name, **fields)
