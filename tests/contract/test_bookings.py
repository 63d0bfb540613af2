"""The store contract: what extends, confirms, releases and renews, and what is left alone."""

import pytest

from reservation_service.reservation import (
    ANONYMOUS,
    Confirm,
    Expire,
    Extend,
    Message,
    Release,
    Status,
    Trigger,
)
from tests.contract.bookings import ALICE, BOB, STATES, TTL_MS, hold_of, row_in, told
from tests.contract.engines import (
    MAX_HOLD_MS,
    EngineUnderTest,
    EventRow,
    Opened,
    Row,
    claim,
    fail,
    hold,
    ring,
)
from tests.support.clock import START, FakeClock

LONGER = 2 * TTL_MS


def messages(holder: bytes, generation: int | None) -> dict[str, Message]:
    """Every message that a holder can send to the row of STATES, by name."""
    return {
        "hold": hold_of("seat-1", holder),
        "extend": Extend("seat-1", LONGER, MAX_HOLD_MS, holder, generation),
        "confirm": Confirm("seat-1", holder, generation),
        "confirm if still free": Confirm("seat-1", holder, generation, if_still_free=True),
        "release": Release("seat-1", holder, generation),
        "release by an operator": Release("seat-1", holder, generation, operator=True),
    }


OWNERS_CHANGES = {
    "hold": {"held", "overdue", "expired", "released"},
    "extend": {"held"},
    "confirm": {"held"},
    "confirm if still free": {"held", "overdue", "expired"},
    "release": {"held"},
    "release by an operator": {"held", "confirmed"},
}
STRANGERS_CHANGES = {
    "hold": {"overdue", "expired", "released"},
    "release by an operator": {"confirmed"},
}
MISFITS_CHANGES = {"release by an operator": {"confirmed"}}

TYPES = {
    "hold": "held",
    "extend": "extended",
    "confirm": "confirmed",
    "confirm if still free": "confirmed",
    "release": "released",
    "release by an operator": "released",
}

in_every_state = pytest.mark.parametrize("state", STATES)
by_every_message = pytest.mark.parametrize("kind", OWNERS_CHANGES)


async def check(
    engine: EngineUnderTest, opened: Opened, state: str, message: Message, *, changes: bool
) -> None:
    engine.plant(**row_in(state))
    before = engine.rows()
    (outcome,) = await told(opened, message)
    assert outcome.changed is changes
    assert outcome.now == START
    assert await opened.store.read("seat-1") == outcome.reservation
    if not changes:
        assert engine.rows() == before
        assert {event.type for event in engine.events()} <= {"confirm-rejected"}


@in_every_state
@by_every_message
@pytest.mark.parametrize("generation", [None, 3])
async def test_a_holders_message_does_what_the_state_allows(
    engine: EngineUnderTest, opened: Opened, state: str, kind: str, generation: int | None
) -> None:
    changes = state in OWNERS_CHANGES[kind]
    await check(engine, opened, state, messages(ALICE, generation)[kind], changes=changes)
    if changes:
        renewed = kind == "hold" and state == "held"
        last = engine.events()[-1]
        assert (last.type, last.at) == ("renewed" if renewed else TYPES[kind], START)
        assert last.trigger == "request"


@in_every_state
@by_every_message
@pytest.mark.parametrize("stranger", [BOB, ANONYMOUS], ids=["named", "anonymous"])
async def test_a_strangers_message_takes_nothing_that_is_not_free(
    engine: EngineUnderTest, opened: Opened, state: str, kind: str, stranger: bytes
) -> None:
    changes = state in STRANGERS_CHANGES.get(kind, set())
    await check(engine, opened, state, messages(stranger, None)[kind], changes=changes)


@in_every_state
@pytest.mark.parametrize("kind", [kind for kind in OWNERS_CHANGES if kind != "hold"])
@pytest.mark.parametrize("generation", [1, 2, 4])
async def test_a_message_of_another_generation_changes_nothing(
    engine: EngineUnderTest, opened: Opened, state: str, kind: str, generation: int
) -> None:
    changes = state in MISFITS_CHANGES.get(kind, set())
    await check(engine, opened, state, messages(ALICE, generation)[kind], changes=changes)


@by_every_message
async def test_an_unknown_name_gets_a_row_by_a_hold_alone(
    engine: EngineUnderTest, opened: Opened, kind: str
) -> None:
    (outcome,) = await told(opened, messages(ALICE, None)[kind])
    assert outcome.changed is (kind == "hold")
    assert outcome.is_own is (kind == "hold")
    if kind != "hold":
        assert outcome.reservation.status is Status.MISSING
        assert (engine.rows(), engine.events()) == ([], [])


@pytest.mark.parametrize("holder", [ALICE, ANONYMOUS])
@in_every_state
async def test_an_outcome_tells_whose_a_row_is_that_is_somebody_elses(
    engine: EngineUnderTest, opened: Opened, state: str, holder: bytes
) -> None:
    engine.plant(**row_in(state, holder=holder))
    extend, alarm = Extend("seat-1", 1, 1, BOB), Expire("seat-1", Trigger.ALARM)
    for message in (extend, alarm):
        (outcome,) = await told(opened, message)
        assert bytes.fromhex(outcome.other_holder) == holder
    (outcome,) = await told(opened, Extend("seat-1", 1, 1, holder))
    assert (outcome.is_own, outcome.other_holder) == (True, "")


@pytest.mark.parametrize("kind", ["extend", "confirm", "release"])
async def test_the_deadline_itself_is_too_late(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock, kind: str
) -> None:
    engine.plant(**row_in("held"))
    clock.advance(TTL_MS)
    assert not (await told(opened, messages(ALICE, None)[kind]))[0].changed
    clock.step(-1)
    assert (await told(opened, messages(ALICE, None)[kind]))[0].changed


@pytest.mark.parametrize(
    ("owner", "caller", "is_own"),
    [
        (ALICE, ALICE, True),
        (ALICE, BOB, False),
        (ALICE, ANONYMOUS, False),
        (ANONYMOUS, ALICE, False),
        (ANONYMOUS, ANONYMOUS, True),
    ],
)
async def test_an_outcome_tells_whether_its_caller_is_the_holder(
    engine: EngineUnderTest, opened: Opened, owner: bytes, caller: bytes, is_own: bool
) -> None:
    engine.plant(**row_in("expired", holder=owner))
    (outcome,) = await told(opened, Release("seat-1", caller))
    assert (outcome.changed, outcome.is_own) == (False, is_own)


async def test_digests_are_told_apart_by_their_last_byte_and_by_zeros(
    engine: EngineUnderTest, opened: Opened
) -> None:
    digest = b"a" * 31 + b"\x00"
    engine.plant(**row_in("held", "seat-1", digest))
    engine.plant(**row_in("held", "seat-2", b"\x00" * 32))
    tries = (b"a" * 31 + b"\x01", b"\x00" * 32, b"a" * 32, ANONYMOUS)
    for other in tries:
        assert not (await told(opened, Release("seat-1", other)))[0].changed
    assert not (await told(opened, Release("seat-2", ANONYMOUS)))[0].changed
    assert [
        one.changed
        for one in await told(opened, Release("seat-1", digest), Release("seat-2", b"\x00" * 32))
    ] == [True, True]


@pytest.mark.parametrize(
    ("ttl_ms", "max_hold_ms", "expected"),
    [
        (TTL_MS + 1, MAX_HOLD_MS, START + TTL_MS + 1),
        (TTL_MS, MAX_HOLD_MS, None),
        (1_000, MAX_HOLD_MS, None),
        (LONGER, 70_000, START + 70_000),
        (LONGER, TTL_MS + 1, START + TTL_MS + 1),
        (LONGER, TTL_MS, None),
        (LONGER, 1_000, None),
    ],
)
async def test_a_deadline_moves_to_the_time_asked_for_never_back_and_no_further_than_the_cap(
    engine: EngineUnderTest,
    opened: Opened,
    ttl_ms: int,
    max_hold_ms: int,
    expected: int | None,
) -> None:
    for name in ("seat-1", "seat-2"):
        engine.plant(**row_in("held", name, created_at=START))
    renewal = hold_of("seat-2", ALICE, ttl_ms)
    extended, renewed = await told(
        opened,
        Extend("seat-1", ttl_ms, max_hold_ms, ALICE),
        type(renewal)("seat-2", ttl_ms, max_hold_ms, 0, ALICE),
    )
    assert extended.changed is (expected is not None)
    assert renewed.changed
    deadline = expected or START + TTL_MS
    for outcome in (extended, renewed):
        row = outcome.reservation
        assert (row.expires_at, row.alarm_at) == (deadline, deadline)
        assert (row.generation, row.created_at) == (3, START)


RETRIED = {"alarm_attempts": 3, "alarm_dispatch_at": START + TTL_MS + 8_000}
AT_WORK = RETRIED | {"alarm_claim": 7}


def slot(row: Row | None) -> tuple[object, ...]:
    assert row is not None
    return tuple(
        row[column] for column in ("alarm_at", "alarm_dispatch_at", "alarm_attempts", "alarm_claim")
    )


@pytest.mark.parametrize("tried", [RETRIED, AT_WORK], ids=["put off", "at work"])
async def test_a_renewal_that_moves_nothing_keeps_the_slot_with_its_attempts(
    engine: EngineUnderTest, opened: Opened, tried: Row
) -> None:
    engine.plant(**(row_in("held") | tried))
    before = slot(engine.row("seat-1"))
    (outcome,) = await told(opened, hold_of("seat-1", ALICE, 1_000))
    assert outcome.changed
    assert slot(engine.row("seat-1")) == before
    assert engine.events() == [EventRow("seat-1", 3, "renewed", START, "request")]


@pytest.mark.parametrize("tried", [RETRIED, AT_WORK], ids=["put off", "at work"])
@pytest.mark.parametrize("kind", ["hold", "extend"])
async def test_a_deadline_that_moves_is_a_new_slot(
    engine: EngineUnderTest, opened: Opened, tried: Row, kind: str
) -> None:
    engine.plant(**(row_in("held") | tried))
    message = hold_of("seat-1", ALICE, LONGER) if kind == "hold" else messages(ALICE, None)[kind]
    assert (await told(opened, message))[0].changed
    assert slot(engine.row("seat-1")) == (START + LONGER, START + LONGER, 0, None)


@pytest.mark.parametrize("kind", ["confirm", "release"])
async def test_an_ending_clears_the_slot_of_an_attempt_at_work(
    engine: EngineUnderTest, opened: Opened, kind: str
) -> None:
    engine.plant(**(row_in("held") | AT_WORK))
    assert (await told(opened, messages(ALICE, None)[kind]))[0].changed
    assert slot(engine.row("seat-1")) == (None, None, 0, None)


@pytest.mark.parametrize("kind", ["hold", "extend", "confirm", "confirm if still free", "release"])
async def test_the_settle_of_an_attempt_that_was_overtaken_touches_nothing(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock, kind: str
) -> None:
    engine.plant(**row_in("held", alarm_at=START, alarm_dispatch_at=START))
    (claimed,) = await claim(opened)
    message = hold_of("seat-1", ALICE, LONGER) if kind == "hold" else messages(ALICE, None)[kind]
    assert (await told(opened, message))[0].changed
    before = engine.rows(), engine.events()
    await fail(opened, claimed)
    assert not (await ring(opened, "seat-1")).changed
    assert (engine.rows(), engine.events()) == before


@pytest.mark.parametrize("kind", ["confirm", "release", "extend"])
async def test_of_a_call_and_the_alarm_at_the_deadline_exactly_one_wins(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock, kind: str
) -> None:
    for passed_ms, wins in ((TTL_MS - 1, True), (TTL_MS, False)):
        name = f"seat-{passed_ms}"
        clock.step(START - clock.now())
        await opened.store.apply(hold_of(name, ALICE))
        clock.advance(passed_ms)
        choices: dict[str, Message] = {
            "confirm": Confirm(name, ALICE),
            "release": Release(name, ALICE),
            "extend": Extend(name, LONGER, MAX_HOLD_MS, ALICE),
        }
        message = choices[kind]
        called = (await opened.store.apply(message)).changed
        rung = (await ring(opened, name)).changed
        assert (called, rung) == (wins, not wins)


async def test_a_late_confirmation_keeps_what_was_recorded_of_the_expiry(
    engine: EngineUnderTest, opened: Opened, clock: FakeClock
) -> None:
    await opened.store.apply(hold_of("seat-1", ALICE))
    clock.advance(TTL_MS)
    await ring(opened, "seat-1")
    clock.advance(5)
    (outcome,) = await told(opened, Confirm("seat-1", ALICE, None, if_still_free=True))
    row = outcome.reservation
    assert (row.status, row.confirmed_at) == (Status.CONFIRMED, START + TTL_MS + 5)
    assert (row.expired_at, row.expiration_count) == (START + TTL_MS, 1)
    (released,) = await told(opened, Release("seat-1", BOB, None, operator=True))
    row = released.reservation
    assert (row.confirmed_at, row.released_at) == (START + TTL_MS + 5, START + TTL_MS + 5)
    assert [event.type for event in engine.events()] == ["held", "expired", "confirmed", "released"]


async def test_a_new_hold_forgets_the_endings_of_the_one_before(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.plant(**row_in("confirmed", expired_at=START, expiration_count=1))
    await told(opened, Release("seat-1", ALICE, None, operator=True))
    (outcome,) = await told(opened, hold_of("seat-1", BOB))
    row = outcome.reservation
    assert (row.generation, row.expiration_count) == (4, 0)
    assert (row.expired_at, row.confirmed_at, row.released_at) == (None, None, None)


async def test_an_anonymous_reset_works_beside_named_holds_of_the_same_batch(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.plant(**row_in("held", "seat-1", ANONYMOUS))
    engine.plant(**row_in("held", "seat-2", ALICE))
    engine.plant(**row_in("held", "seat-3", ALICE))
    outcomes = await told(
        opened,
        hold_of("seat-1", ANONYMOUS, 5_000),
        hold_of("seat-2", ANONYMOUS, 5_000),
        hold_of("seat-3", ALICE, 5_000),
        hold_of("seat-4", BOB, 5_000),
    )
    assert [one.changed for one in outcomes] == [True, False, True, True]
    assert [one.reservation.generation for one in outcomes] == [4, 3, 3, 1]
    assert [(e.reservation, e.type) for e in engine.events()] == [
        ("seat-3", "renewed"),
        ("seat-1", "held"),
        ("seat-4", "held"),
    ]


async def test_a_replay_expires_a_named_hold_like_its_alarm(
    engine: EngineUnderTest, opened: Opened
) -> None:
    engine.plant(**row_in("held"))
    (outcome,) = await told(opened, Expire("seat-1", Trigger.REPLAY, START + TTL_MS))
    assert (outcome.changed, outcome.reservation.status) == (True, Status.EXPIRED)
    assert (await hold(opened, "seat-1")).reservation.generation == 4
