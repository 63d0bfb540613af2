"""The example's visitors: what is given back when tabs close, and what a reload keeps."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from examples.checkout import presence as module
from examples.checkout.presence import Hold, Presence

HOLD = Hold("hall-a1", 1)


class Grace:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self._over = asyncio.Event()

    async def sleep(self, _seconds: float) -> None:
        await self._over.wait()

    async def is_over(self) -> None:
        """Every farewell that began so far has had its time."""
        self._over.set()
        for _ in range(5):
            await asyncio.sleep(0)
        self._over.clear()


class Returned:
    """What was given back."""

    def __init__(self) -> None:
        self.holds: list[tuple[str, Hold]] = []

    async def __call__(self, holder: str, hold: Hold) -> None:
        self.holds.append((holder, hold))


@pytest.fixture
def grace() -> Grace:
    return Grace()


@pytest.fixture
def returned() -> Returned:
    return Returned()


@pytest.fixture
async def presence(grace: Grace, returned: Returned) -> AsyncIterator[Presence]:
    made = Presence(returned, 5.0, grace.sleep)
    yield made
    await made.close()


async def test_the_hold_of_a_closed_tab_is_given_back_once(
    presence: Presence, grace: Grace, returned: Returned
) -> None:
    presence.arrive("holder", "page")
    presence.leave("holder", "page", HOLD)
    presence.leave("holder", "page", HOLD)
    await grace.is_over()
    await grace.is_over()
    assert returned.holds == [("holder", HOLD)]


async def test_a_reload_keeps_the_hold_in_whatever_order_its_words_arrive(
    presence: Presence, grace: Grace, returned: Returned
) -> None:
    presence.arrive("quick", "before")
    presence.arrive("quick", "after")
    presence.leave("quick", "before", HOLD)
    presence.arrive("slow", "before")
    presence.leave("slow", "before", HOLD)
    presence.arrive("slow", "after")
    await grace.is_over()
    assert returned.holds == []


async def test_the_hold_stays_until_the_last_tab_of_its_holder_is_closed(
    presence: Presence, grace: Grace, returned: Returned
) -> None:
    presence.arrive("holder", "tab")
    presence.arrive("holder", "its copy")
    presence.leave("holder", "its copy", HOLD)
    await grace.is_over()
    assert returned.holds == []
    presence.leave("holder", "tab", HOLD)
    await grace.is_over()
    assert returned.holds == [("holder", HOLD)]


async def test_a_tab_that_held_nothing_leaves_nothing_behind(
    presence: Presence, grace: Grace, returned: Returned
) -> None:
    presence.arrive("holder", "page")
    presence.leave("holder", "page", None)
    await grace.is_over()
    assert returned.holds == []


async def test_who_was_silent_for_longest_is_forgotten_at_the_limit(
    presence: Presence, grace: Grace, returned: Returned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOLDERS_MAX", 2)
    for holder in ("first", "second", "third"):
        presence.leave(holder, "page", HOLD)
    await grace.is_over()
    assert returned.holds == [("second", HOLD), ("third", HOLD)]
