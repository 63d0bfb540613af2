"""The store contract: the list in pages, complete and in order while others write."""

import random
from collections.abc import AsyncIterator

import pytest

from reservation_service.reservation import Release, Status
from reservation_service.storage import sqlite_reads
from reservation_service.store import Page, Place, Query
from tests.contract.bookings import ALICE, STATES, hold_of, row_in, told
from tests.contract.engines import EngineUnderTest, Opened, hold
from tests.support.clock import START, FakeClock


def found(page: Page) -> list[str]:
    return [row.reservation_id for row in page.items]


async def walk(
    opened: Opened, limit: int, status: Status | None = None, id_prefix: str = ""
) -> AsyncIterator[Page]:
    """Every page from the first to the last."""
    after: Place | None = None
    for _ in range(1_000):
        page = await opened.store.find(Query(limit, status, id_prefix, after))
        yield page
        if page.next is None:
            return
        after = page.next
    raise AssertionError("a list without an end")


async def plant_some(engine: EngineUnderTest, count: int, seed: int = 0) -> list[str]:
    """Rows of every state; their names in the order of the list."""
    chance = random.Random(seed)
    places = []
    for number in range(count):
        state = chance.choice([state for state in STATES if state != "overdue"])
        expires_at = START + chance.randrange(1, 9)
        name = f"{chance.choice('abc')}-{number:03}"
        alarm = expires_at if state == "held" else None
        planned = {"alarm_at": alarm, "alarm_dispatch_at": alarm}
        engine.plant(**(row_in(state, name, expires_at=expires_at) | planned))
        places.append((expires_at, name))
    return [name for _, name in sorted(places)]


@pytest.mark.parametrize("limit", [1, 7, 39, 40, 41, 500])
async def test_pages_put_together_are_the_whole_list_in_order(
    engine: EngineUnderTest, opened: Opened, limit: int
) -> None:
    names = await plant_some(engine, 40)
    pages = [page async for page in walk(opened, limit)]
    assert [name for page in pages for name in found(page)] == names
    assert all(len(page.items) == limit for page in pages[:-1])


@pytest.mark.parametrize("status", [status for status in Status if status != "missing"])
@pytest.mark.parametrize("id_prefix", ["", "b", "b-0", "zz"])
async def test_filters_leave_out_the_others_and_nothing_else(
    engine: EngineUnderTest, opened: Opened, status: Status, id_prefix: str
) -> None:
    names = await plant_some(engine, 60)
    states = {row["id"]: row["status"] for row in engine.rows()}
    pages = [page async for page in walk(opened, 3, status, id_prefix)]
    assert [name for page in pages for name in found(page)] == [
        name for name in names if states[name] == status and name.startswith(id_prefix)
    ]


@pytest.mark.parametrize("id_prefix", ["%", "_", "a%", "A"])
async def test_a_prefix_is_no_pattern(
    engine: EngineUnderTest, opened: Opened, id_prefix: str
) -> None:
    await plant_some(engine, 10)
    assert found(await opened.store.find(Query(10, None, id_prefix))) == []


async def test_rows_that_stay_are_seen_exactly_once_while_others_come_and_go(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    names = await plant_some(engine, 40)
    chance = random.Random(1)
    seen: list[str] = []
    number = 0
    async for page in walk(opened, 4):
        seen += found(page)
        for _ in range(3):
            number += 1
            await told(opened, hold_of(f"new-{number}", ALICE, chance.randrange(1, 9)))
        await opened.store.apply(Release(f"new-{number}", ALICE))
    stayed = [name for name in seen if not name.startswith("new-")]
    assert stayed == names
    assert len(set(seen)) == len(seen)


async def test_a_place_is_a_place_though_its_row_is_gone(
    engine: EngineUnderTest, opened: Opened
) -> None:
    names = await plant_some(engine, 6)
    rows = {row["id"]: row["expires_at"] for row in engine.rows()}
    between = Place(rows[names[2]], f"{names[2]}-x")
    assert found(await opened.store.find(Query(10, after=between))) == names[3:]


async def test_a_rare_status_gives_short_pages_that_are_not_the_last(
    engine: EngineUnderTest, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_reads, "SCANNED_MAX", 10)
    for number in range(35):
        state = "released" if number in {0, 9, 10, 31} else "confirmed"
        engine.plant(**row_in(state, f"seat-{number:02}", expires_at=START + 1))
    pages = [page async for page in walk(opened, 50, Status.RELEASED)]
    assert [found(page) for page in pages] == [
        *(["seat-00", "seat-09"], ["seat-10"], [], ["seat-31"])
    ]
    assert [page.next is None for page in pages] == [False, False, False, True]


async def test_a_page_that_is_full_goes_on_from_its_last_row(
    engine: EngineUnderTest, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_reads, "SCANNED_MAX", 10)
    names = await plant_some(engine, 25)
    pages = [page async for page in walk(opened, 4)]
    assert [name for page in pages for name in found(page)] == names
    pages = [page async for page in walk(opened, 10)]
    assert [name for page in pages for name in found(page)] == names


async def test_one_page_looks_at_a_bounded_number_of_rows() -> None:
    assert sqlite_reads.SCANNED_MAX == 10_000
    for statement in (sqlite_reads.FIND, sqlite_reads.SCANNED_TO):
        assert ":scanned_max" in statement


async def test_an_empty_list_has_one_empty_page(opened: Opened) -> None:
    assert await opened.store.find(Query(10)) == Page([], None)


async def test_a_page_shows_what_is_committed(engine: EngineUnderTest, opened: Opened) -> None:
    outcome = await hold(opened, "seat-1")
    assert (await opened.store.find(Query(10))).items == [outcome.reservation]
