"""The contract's precedence table, cell by cell: holder, then generation, then state, deadline."""

from typing import Any

import pytest

from tests.http.answers import FIELDS, assert_problem
from tests.http.bookings import (
    DEADLINE,
    STATES,
    TTL_MS,
    TTL_SECONDS,
    alarms_held_back,
    body,
    bring,
    changed,
    confirm,
    everything,
    extend,
    held,
    hold,
    path,
    release,
    unchanged,
)
from tests.support.clock import START
from tests.support.harness import Answer, ServiceHarness
from tests.support.rows import history, row

Verdict = tuple[int, object]

CREATED, CHANGED, UNCHANGED = (201, None), (200, True), (200, False)
NOT_YOURS, TAKEN = (403, "not-your-hold"), (409, "taken")
CONFIRMED, NO_HOLD = (409, "already-confirmed"), (410, "no-hold")
EXPIRED, RELEASED = (410, "hold-expired"), (410, "hold-released")

CALLS: dict[str, tuple[str, dict[str, object]]] = {
    "hold": ("hold", {"ttlSeconds": TTL_SECONDS}),
    "extend": ("extend", {"ttlSeconds": 2 * TTL_SECONDS}),
    "confirm": ("confirm", {}),
    "confirm if still free": ("confirm", {"ifStillFree": True}),
    "release": ("release", {}),
}

MISSING: list[Verdict] = [CREATED, NO_HOLD, NO_HOLD, NO_HOLD, UNCHANGED]
OWN: dict[str, list[Verdict]] = {
    "held": [CREATED, CHANGED, CHANGED, CHANGED, CHANGED],
    "overdue": [CREATED, EXPIRED, EXPIRED, CHANGED, UNCHANGED],
    "expired": [CREATED, EXPIRED, EXPIRED, CHANGED, UNCHANGED],
    "released": [CREATED, RELEASED, RELEASED, RELEASED, UNCHANGED],
    "confirmed": [CONFIRMED, CONFIRMED, UNCHANGED, UNCHANGED, CONFIRMED],
    "missing": MISSING,
}
STRANGERS: dict[str, list[Verdict]] = {
    "held": [(409, "already-held"), NOT_YOURS, NOT_YOURS, TAKEN, NOT_YOURS],
    "overdue": [CREATED, NOT_YOURS, NOT_YOURS, NOT_YOURS, NOT_YOURS],
    "expired": [CREATED, NOT_YOURS, NOT_YOURS, NOT_YOURS, NOT_YOURS],
    "released": [CREATED, NOT_YOURS, NOT_YOURS, NOT_YOURS, NOT_YOURS],
    "confirmed": [CONFIRMED, NOT_YOURS, NOT_YOURS, TAKEN, NOT_YOURS],
    "missing": MISSING,
}
"""One line per state of the row, one column per call, in the order of CALLS."""

ALICE, BOB, NOBODY = "alice-4711", "bob-0815", None
PAIRS: dict[str, tuple[str | None, str | None, dict[str, list[Verdict]]]] = {
    "her own": (ALICE, ALICE, OWN),
    "anonymous, asked anonymously": (NOBODY, NOBODY, OWN),
    "hers, asked by another": (ALICE, BOB, STRANGERS),
    "hers, asked anonymously": (ALICE, NOBODY, STRANGERS),
    "anonymous, asked by somebody": (NOBODY, BOB, STRANGERS),
}

in_every_state = pytest.mark.parametrize("state", STATES)
by_every_pair = pytest.mark.parametrize("pair", PAIRS)


def kind(answer: Answer) -> Verdict:
    """The status, and what the table says beside it: changed or not, or the problem's code."""
    if answer.status >= 400:
        assert_problem(answer, answer.status, answer.json["code"])
        return answer.status, answer.json["code"]
    return answer.status, answer.json.get("changed")


@in_every_state
@by_every_pair
async def test_every_cell_of_the_precedence_table_is_as_the_contract_says(
    service: ServiceHarness, state: str, pair: str
) -> None:
    owner, caller, table = PAIRS[pair]
    names = [f"seat-{number}" for number in range(len(CALLS))]
    await bring(service, state, owner, names)
    for name, call, expected in zip(names, CALLS, table[state], strict=True):
        before = everything(service)
        answer = await ask(service, name, call, caller)
        assert kind(answer) == expected, (call, answer.body)
        if expected not in {CREATED, CHANGED}:
            assert without_remarks(everything(service)) == without_remarks(before), call
        shown = await service.status(name)
        if answer.status >= 400:
            assert answer.json["reservation"] == shown, call
        else:
            assert answer.json | {"changed": None} == shown | {"changed": None}, call
            assert list(answer.json) == FIELDS + ["changed"] * (answer.status == 200)


async def ask(service: ServiceHarness, name: str, call: str, holder: str | None) -> Answer:
    verb, fields = CALLS[call]
    if call == "confirm if still free" and holder is None:
        fields = fields | {"generation": (await service.status(name))["generation"] or 1}
    return await service.post(path(name, verb), body(holder, **fields))


def without_remarks(state: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
    rows, events = state
    return rows, [event for event in events if event["type"] != "confirm-rejected"]


@pytest.mark.parametrize("state", STATES[:-1])
@pytest.mark.parametrize("call", list(CALLS)[1:])
async def test_another_generation_is_refused_before_the_state_is_looked_at(
    service: ServiceHarness, state: str, call: str
) -> None:
    verb, fields = CALLS[call]
    await bring(service, state, ALICE, ["seat-1"])
    before = everything(service)
    for generation in (2, 2**53 - 1):
        asked = body(ALICE, generation=generation, **fields)
        answer = await service.post(path("seat-1", verb), asked)
        assert_problem(answer, 409, "generation-mismatch")
        assert answer.json["reservation"] == await service.status("seat-1")
    assert everything(service) == before


@pytest.mark.parametrize("state", STATES[:-1])
@pytest.mark.parametrize("call", list(CALLS)[1:])
async def test_a_stranger_is_refused_before_the_generation_is_looked_at(
    service: ServiceHarness, state: str, call: str
) -> None:
    verb, fields = CALLS[call]
    column = list(CALLS).index(call)
    await bring(service, state, ALICE, ["seat-1"])
    answer = await service.post(path("seat-1", verb), body(BOB, generation=9, **fields))
    assert kind(answer) == STRANGERS[state][column]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("call", list(CALLS)[1:])
async def test_the_rows_own_generation_changes_nothing_about_the_answer(
    service: ServiceHarness, state: str, call: str
) -> None:
    verb, fields = CALLS[call]
    column = list(CALLS).index(call)
    await bring(service, state, ALICE, ["seat-1"])
    answer = await service.post(path("seat-1", verb), body(ALICE, generation=1, **fields))
    assert kind(answer) == OWN[state][column]


@pytest.mark.parametrize("holder", [ALICE, NOBODY], ids=["named", "anonymous"])
@pytest.mark.parametrize("call", [extend, confirm, release])
async def test_one_millisecond_before_the_deadline_a_call_wins(
    service: ServiceHarness, holder: str | None, call: Any
) -> None:
    held(await hold(service, "seat-1", holder))
    await service.advance(TTL_MS - 1)
    changed(await call(service, "seat-1", holder))
    await service.advance(1)
    assert "expired" not in [event for _, event, _ in history(service.database, "seat-1")]


@pytest.mark.parametrize("holder", [ALICE, NOBODY], ids=["named", "anonymous"])
@pytest.mark.parametrize("call", [extend, confirm, release])
async def test_at_the_very_deadline_a_call_loses_though_the_alarm_has_not_run(
    service: ServiceHarness, holder: str | None, call: Any
) -> None:
    held(await hold(service, "seat-1", holder))
    with alarms_held_back(service):
        service.clock.advance(TTL_MS)
        before = row(service.database, "seat-1")
        answer = await call(service, "seat-1", holder)
        assert kind(answer) == (UNCHANGED if call is release else EXPIRED)
        assert row(service.database, "seat-1") == before
        assert before["status"] == "held"
    await service.quiet()
    assert history(service.database, "seat-1")[-1] == (1, "expired", "alarm")


async def test_a_stranger_waits_to_the_very_millisecond(service: ServiceHarness) -> None:
    held(await hold(service, "seat-1", ALICE))
    with alarms_held_back(service):
        service.clock.advance(TTL_MS - 1)
        answer = await hold(service, "seat-1", BOB)
        assert_problem(answer, 409, "already-held")
        assert answer.headers["Retry-After"] == "1"
        service.clock.advance(1)
        assert held(await hold(service, "seat-1", BOB))["generation"] == 2


@pytest.mark.parametrize(
    ("passed_ms", "seconds"),
    [(0, 60), (1, 60), (999, 60), (1_000, 59), (1_001, 59), (59_000, 1), (59_999, 1)],
)
async def test_a_refused_hold_says_when_to_come_back_and_never_too_early(
    service: ServiceHarness, passed_ms: int, seconds: int
) -> None:
    held(await hold(service, "seat-1", ALICE))
    await service.advance(passed_ms)
    answer = await hold(service, "seat-1", BOB)
    assert_problem(answer, 409, "already-held")
    assert answer.headers["Retry-After"] == str(seconds)
    assert answer.headers["Server-Time"] == str(START + passed_ms)


async def test_a_confirmed_one_promises_no_time_to_come_back(service: ServiceHarness) -> None:
    await bring(service, "confirmed", ALICE, ["seat-1"])
    answer = await hold(service, "seat-1", BOB)
    assert_problem(answer, 409, "already-confirmed")
    assert "Retry-After" not in answer.headers


@pytest.mark.parametrize("holder", [ALICE, BOB, NOBODY])
async def test_taking_over_an_overdue_hold_records_its_end_before_the_new_one(
    service: ServiceHarness, holder: str | None
) -> None:
    held(await hold(service, "seat-1", ALICE))
    with alarms_held_back(service):
        service.clock.advance(TTL_MS + 7)
        taken = held(await hold(service, "seat-1", holder))
    await service.quiet()
    assert (taken["generation"], taken["createdAt"]) == (2, DEADLINE + 7)
    assert (taken["expirationCount"], taken["expiredAt"]) == (0, None)
    assert history(service.database, "seat-1") == [
        (1, "held", "request"),
        (1, "expired", "request"),
        (2, "held", "request"),
    ]
    assert await service.status("seat-1") == taken


@pytest.mark.parametrize("verb", ["confirm", "release"])
async def test_an_empty_body_is_the_same_as_an_empty_object(
    service: ServiceHarness, verb: str
) -> None:
    for name, data in (("seat-1", b""), ("seat-2", b"{}")):
        held(await hold(service, name))
        headers = {"Content-Type": "application/json"}
        answer = await service.request("POST", path(name, verb), data=data, headers=headers)
        changed(answer)
    (first, second) = (await service.status("seat-1"), await service.status("seat-2"))
    assert first | {"reservationId": None} == second | {"reservationId": None}


@pytest.mark.parametrize("verb", ["confirm", "release"])
@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_an_empty_body_too_must_be_declared_as_json(
    service: ServiceHarness, verb: str, content_type: str | None
) -> None:
    held(await hold(service, "seat-1"))
    before = everything(service)
    answer = await service.request(
        "POST",
        path("seat-1", verb),
        data=b"",
        headers={"Content-Type": content_type} if content_type else {},
        skip_auto_headers=["Content-Type"],
    )
    assert_problem(answer, 415, "unsupported-media-type")
    assert everything(service) == before


@pytest.mark.parametrize("data", [b" ", b"null", b"[]", b"{", b'""'])
@pytest.mark.parametrize("verb", ["confirm", "release", "extend"])
async def test_a_body_that_is_neither_empty_nor_an_object_is_refused(
    service: ServiceHarness, verb: str, data: bytes
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await service.request("POST", path("seat-1", verb), data=data, headers=headers)
    assert_problem(answer, 400, "invalid-body", "Send a JSON request body.")


TTL: dict[str, object] = {"ttlSeconds": 60}
BAD_GENERATIONS: list[object] = [0, -1, 1.5, "1", True, None, 2**53]
BAD_TTLS: list[object] = [None, 4, 3_601, "60", True, 5.5]
BAD_FLAGS: list[object] = [1, 0, "true", None, []]
UNKNOWN_FIELDS: list[tuple[str, dict[str, object]]] = [
    ("hold", TTL | {"generation": 1}),
    ("hold", TTL | {"ifStillFree": True}),
    ("hold", TTL | {"Holder": "x"}),
    ("extend", TTL | {"ifStillFree": True}),
    ("extend", TTL | {"now": 1}),
    ("confirm", {"ttlSeconds": 60}),
    ("confirm", {"ifstillfree": True}),
    ("release", {"ifStillFree": True}),
    ("release", {"operator": True}),
]
BAD_VALUES: list[tuple[str, dict[str, object]]] = [
    *(("extend", {"ttlSeconds": bad}) for bad in BAD_TTLS),
    *(("extend", TTL | {"generation": bad}) for bad in BAD_GENERATIONS),
    *(("confirm", {"generation": bad}) for bad in BAD_GENERATIONS),
    *(("release", {"generation": bad}) for bad in BAD_GENERATIONS),
    *(("confirm", {"ifStillFree": bad}) for bad in BAD_FLAGS),
]


async def test_an_unknown_field_is_refused_by_name_and_moves_nothing(
    service: ServiceHarness,
) -> None:
    held(await hold(service, "seat-1"))
    before = everything(service)
    for verb, fields in UNKNOWN_FIELDS:
        answer = await service.post(path("seat-1", verb), fields)
        sentence = f'Unknown field "{next(reversed(fields))}".'
        assert_problem(answer, 400, "unknown-field", sentence)
        assert "reservation" not in answer.json
    assert everything(service) == before


async def test_a_value_out_of_bounds_is_refused_by_name_and_moves_nothing(
    service: ServiceHarness,
) -> None:
    held(await hold(service, "seat-1"))
    await service.advance(1_000)
    before = everything(service)
    for verb, fields in BAD_VALUES:
        answer = await service.post(path("seat-1", verb), fields)
        assert_problem(answer, 400, "invalid-field")
        assert answer.json["error"].startswith(f"{next(reversed(fields))} must be "), fields
    assert everything(service) == before


@pytest.mark.parametrize("verb", ["extend", "confirm", "release"])
async def test_the_calls_of_a_hold_exist_for_post_alone(service: ServiceHarness, verb: str) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        answer = await service.request(method, path("seat-1", verb))
        assert_problem(answer, 405, "method-not-allowed")
        assert answer.headers["Allow"] == "POST"
    answer = await service.post(f"{path('seat-1', verb)}/", {})
    assert_problem(answer, 404, "not-found")
    answer = await service.post(path("X", verb), {"nonsense": 1})
    assert_problem(answer, 400, "invalid-id")


@pytest.mark.parametrize("holder", [ALICE, NOBODY], ids=["named", "anonymous"])
async def test_a_hold_that_was_given_up_is_free_at_once_for_everybody(
    service: ServiceHarness, holder: str | None
) -> None:
    held(await hold(service, "seat-1", holder))
    changed(await release(service, "seat-1", holder))
    unchanged(await release(service, "seat-1", holder))
    assert held(await hold(service, "seat-1", BOB))["generation"] == 2
    changed(await release(service, "seat-1", BOB))
    assert held(await hold(service, "seat-1", holder))["generation"] == 3
