"""The log's contract: every committed event once, in order, without a gap, all or by name."""

import json
from typing import Any

import msgspec
import pytest

from reservation_service.errors import MessageFailed
from reservation_service.events import Event, EventPage, EventQuery
from reservation_service.reservation import Confirm, Release
from reservation_service.store import Purge
from tests.contract.bookings import ALICE, BOB, hold_of, purged
from tests.contract.engines import EngineUnderTest, EventRow, Opened, hold, replay, ring
from tests.support.clock import START, FakeClock

DAY_MS = 86_400_000
EVERYTHING = 10_000


def as_row(event: Event) -> EventRow:
    return EventRow(
        event.reservation,
        event.generation,
        event.type,
        event.at,
        event.trigger,
        msgspec.json.decode(event.data),
    )


async def read(opened: Opened, after: int = 0, limit: int = EVERYTHING, *names: str) -> EventPage:
    return await opened.log.read_events(EventQuery(after, limit, frozenset(names) or None))


async def walk(opened: Opened, limit: int, *names: str) -> list[EventPage]:
    """Every page from the first to the last, which is short."""
    pages = [await read(opened, 0, limit, *names)]
    while len(pages[-1].items) == limit:
        pages.append(await read(opened, pages[-1].next, limit, *names))
    return pages


async def some_lives(opened: Opened, clock: FakeClock, count: int = 12) -> None:
    """Holds that expire by alarm and by replay, that are released, that are paid too late."""
    for number in range(count):
        seat = f"seat-{number % 4}"
        await hold(opened, seat)
        if number % 3 == 0:
            await replay(opened, seat, START + DAY_MS)
        elif number % 3 == 1:
            clock.advance(5_000)
            await ring(opened, seat)
        await opened.store.apply(Confirm(seat, BOB, None, True))


async def test_an_event_is_read_as_it_was_recorded(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await some_lives(opened, clock)
    page = await read(opened)
    assert [as_row(event) for event in page.items] == engine.events()
    assert {event.type for event in page.items} == {"held", "expired", "confirm-rejected"}


async def test_the_data_of_an_event_is_json_on_one_line(
    engine: EngineUnderTest, opened: Opened
) -> None:
    spelled = '{"text":\n "two\\nlines",\r\n "number": 12345678901234567890 }'
    engine.record(
        reservation="seat-1", generation=1, type="kept", at=START, trigger="alarm", data=spelled
    )
    (event,) = (await read(opened)).items
    assert b"\n" not in bytes(event.data)
    assert b"\r" not in bytes(event.data)
    assert json.loads(bytes(event.data)) == json.loads(spelled)


async def test_a_late_payment_is_read_with_its_reason(opened: Opened) -> None:
    await opened.store.apply(hold_of("seat-1", ALICE))
    await opened.store.apply(Release("seat-1", ALICE))
    await opened.store.apply(Confirm("seat-1", ALICE))
    (*_, rejected) = (await read(opened)).items
    assert (rejected.type, json.loads(bytes(rejected.data))) == (
        "confirm-rejected",
        {"code": "hold-released"},
    )


@pytest.mark.parametrize("limit", [1, 7, 26, 500])
async def test_pages_put_together_are_the_whole_log_without_a_gap(
    opened: Opened, clock: FakeClock, limit: int
) -> None:
    await some_lives(opened, clock)
    pages = await walk(opened, limit)
    seqs = [event.seq for page in pages for event in page.items]
    assert seqs == list(range(1, pages[-1].newest + 1))
    assert len(seqs) == 26
    assert [page.next for page in pages[:-1]] == [page.items[-1].seq for page in pages[:-1]]
    assert pages[-1].next == pages[-1].newest


@pytest.mark.parametrize("limit", [1, 3, 500])
@pytest.mark.parametrize(
    "names", [("seat-0",), ("seat-3", "seat-1"), ("seat-2", "never-held"), ("never-held",)]
)
async def test_named_reservations_are_read_in_the_order_of_the_whole_log(
    opened: Opened, clock: FakeClock, limit: int, names: tuple[str, ...]
) -> None:
    await some_lives(opened, clock)
    everything = (await read(opened)).items
    pages = await walk(opened, limit, *names)
    assert [event for page in pages for event in page.items] == [
        event for event in everything if event.reservation in names
    ]
    assert pages[-1].next == len(everything)


async def test_200_names_are_read_at_once(opened: Opened) -> None:
    names = [f"{number:040}" for number in range(200)]
    for name in names:
        await hold(opened, name)
    assert [event.reservation for event in (await read(opened, 0, 500, *names)).items] == names


async def test_a_log_that_is_empty_begins_behind_its_end(opened: Opened) -> None:
    assert await read(opened) == EventPage([], next=0, oldest=1, newest=0)


async def test_what_was_rolled_back_leaves_no_gap(engine: EngineUnderTest, opened: Opened) -> None:
    await hold(opened, "seat-1")
    engine.refuse_events_of("seat-2")
    with pytest.raises(MessageFailed):
        await hold(opened, "seat-2")
    await hold(opened, "seat-3")
    assert [(event.seq, event.reservation) for event in (await read(opened)).items] == [
        (1, "seat-1"),
        (2, "seat-3"),
    ]


async def test_an_open_transaction_is_not_read(engine: EngineUnderTest, opened: Opened) -> None:
    await hold(opened, "seat-1")
    with engine.uncommitted("seat-2"):
        page = await read(opened)
    assert ([event.reservation for event in page.items], page.newest) == (["seat-1"], 1)


async def test_the_numbers_go_on_over_a_restart_and_over_a_purge_of_everything(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    for name in ("seat-1", "seat-2"):
        await hold(opened, name)
    await purged(opened, Purge(100, START + DAY_MS, START + DAY_MS))
    assert await read(opened) == EventPage([], next=2, oldest=3, newest=2)
    again = await engine.open(clock)
    await hold(again, "seat-3")
    page = await read(again)
    assert [event.seq for event in page.items] == [3]
    assert (page.oldest, page.newest) == (3, 3)


async def test_a_position_that_retention_has_passed_is_told_as_lost(
    opened: Opened, clock: FakeClock
) -> None:
    for _ in range(5):
        await hold(opened, "seat-1")
        clock.advance(1_000)
    await purged(opened, Purge(100, START + 3_000, START))
    page = await read(opened, after=1)
    assert [event.seq for event in page.items] == [4, 5]
    assert {at: page.has_lost(at) for at in range(8)} == {
        **dict.fromkeys(range(3), True),
        **dict.fromkeys(range(3, 6), False),
        **dict.fromkeys(range(6, 8), True),  # no number of this log
    }


async def test_a_purge_leaves_no_hole_though_the_clock_was_set_back(
    engine: EngineUnderTest, opened: Opened
) -> None:
    row: dict[str, Any] = {
        "reservation": "seat-1",
        "generation": 1,
        "type": "x",
        "trigger": "alarm",
    }
    for at in (1_000, 2_000, 9_000, 1_500, 9_500):
        engine.record(at=at, **row)
    await purged(opened, Purge(100, 5_000, 0))
    page = await read(opened)
    assert [event.seq for event in page.items] == [3, 4, 5]
