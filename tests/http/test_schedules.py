"""The schedule calls: what may be planned, by whom, on what, and what is answered."""

import json
from typing import Any

import pytest

from reservation_service.web.schedules import DATA_BYTES_MAX
from tests.http.answers import ID_SENTENCE, assert_problem
from tests.http.bookings import DEADLINE, STATES, bring, everything
from tests.http.schedules import DAY, SECOND, cancel, path, plan, planned, schedule, shown
from tests.support.clock import START
from tests.support.harness import Answer, ServiceHarness

ALICE, BOB = "alice-4711", "bob-0815"
EVENT_ID_SENTENCE = ID_SENTENCE.replace("reservation", "event")
RUN_AT_SENTENCE = "runAt must be a positive integer timestamp."
REPEAT_SENTENCE = "repeatMs must be an integer from 1000."
DATA_SENTENCE = "data must be at most 2048 bytes of JSON."

BAD_TIMES: list[object] = [None, 0, -1, 1.5, "1", True, 2**53, [1]]
BAD_PERIODS: list[object] = [0, -1, 999, 1000.5, "1000", True, 2**53, []]
BAD_VALUES: list[tuple[dict[str, Any], str, str]] = [
    *(({"runAt": value}, "invalid-field", RUN_AT_SENTENCE) for value in BAD_TIMES),
    *(({"repeatMs": value}, "invalid-field", REPEAT_SENTENCE) for value in BAD_PERIODS),
    ({"data": "x" * (DATA_BYTES_MAX - 1)}, "invalid-field", DATA_SENTENCE),
    ({"data": [[] for _ in range(DATA_BYTES_MAX)]}, "invalid-field", DATA_SENTENCE),
    ({"holder": ""}, "invalid-field", "holder must be"),
    ({"generation": 0}, "invalid-field", "generation must be"),
    ({"when": 1}, "unknown-field", 'Unknown field "when".'),
]

DATA = [
    {"to": "+43 1 2345", "texts": ["a", "b"]},
    '🎫 é \u0000 \\ "',
    [1, 1.5, -0.1, 10**18, True, False, [None]],
    0,
    False,
    "",
    {},
    "x" * (DATA_BYTES_MAX - 2),
]


@pytest.fixture
async def service(service: ServiceHarness) -> ServiceHarness:
    await bring(service, "held", ALICE, ["seat-1"])
    return service


def problem_of(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["code"]


async def test_an_event_is_planned_replaced_shown_and_deleted(service: ServiceHarness) -> None:
    new = await plan(service, "call", holder=ALICE, data={"to": "me"})
    assert new.status == 201
    assert new.json == {
        "eventId": "call",
        "runAt": START + SECOND,
        "repeatMs": None,
        "data": {"to": "me"},
    }
    assert (await service.status("seat-1"))["alarmAt"] == START + SECOND
    again = await plan(service, "call", holder=ALICE, repeatMs=1_000, runAt=START + 7)
    assert (again.status, again.json["repeatMs"], again.json["data"]) == (200, 1_000, None)
    await planned(service, "mail", holder=ALICE, runAt=START + 5)
    answer = await schedule(service, ALICE)
    assert [item["eventId"] for item in answer.json["items"]] == ["mail", "call"]
    assert answer.json["items"][1] == again.json
    gone = await cancel(service, "mail", ALICE)
    assert (gone.status, gone.json["changed"]) == (200, True)
    assert gone.json["alarmAt"] == START + 7
    assert await shown(service, ALICE) == [("call", START + 7)]


@pytest.mark.parametrize("data", DATA, ids=range(len(DATA)))
async def test_the_clients_own_data_comes_back_as_it_was(
    service: ServiceHarness, data: object
) -> None:
    await planned(service, "call", holder=ALICE, data=data)
    (item,) = (await schedule(service, ALICE)).json["items"]
    assert item["data"] == data
    assert type(item["data"]) is type(data)


async def test_data_may_be_as_deep_as_it_is_long(service: ServiceHarness) -> None:
    deep = json.loads("[" * 900 + "]" * 900)
    answer = await plan(service, "call", holder=ALICE, data=deep)
    assert answer.status == 201
    await service.advance(SECOND)
    assert await shown(service, ALICE) == []


async def test_null_is_the_same_as_nothing(service: ServiceHarness) -> None:
    document = await planned(service, "call", holder=ALICE, repeatMs=None, data=None)
    assert (document["repeatMs"], document["data"]) == (None, None)


@pytest.mark.parametrize(("fields", "code", "sentence"), BAD_VALUES, ids=range(len(BAD_VALUES)))
async def test_a_value_that_is_none_is_refused_by_name(
    service: ServiceHarness, fields: dict[str, Any], code: str, sentence: str
) -> None:
    before = everything(service)
    answer = await plan(service, "call", **{"holder": ALICE} | fields)
    assert_problem(answer, 400, code)
    assert answer.json["detail"].startswith(sentence)
    assert everything(service) == before


async def test_a_number_without_a_fraction_is_an_integer(service: ServiceHarness) -> None:
    answer = await service.request(
        "PUT",
        path("call"),
        data=f'{{"runAt": {START + 5}.0, "repeatMs": 1e3, "holder": "{ALICE}"}}',
        headers={"Content-Type": "application/json"},
    )
    assert (answer.status, answer.json["runAt"], answer.json["repeatMs"]) == (201, START + 5, 1_000)


@pytest.mark.parametrize("event_id", ["ab", "Call", "-call", "call-", "a" * 41, "ca%2fll", "c%0al"])
async def test_a_bad_event_id_is_told_as_one(service: ServiceHarness, event_id: str) -> None:
    for answer in (await plan(service, event_id, holder=ALICE), await cancel(service, event_id)):
        assert_problem(answer, 400, "invalid-id", EVENT_ID_SENTENCE)


async def test_a_bad_reservation_id_is_told_before_the_events(service: ServiceHarness) -> None:
    for method, event_id in (("PUT", "X"), ("DELETE", "X"), ("GET", None)):
        answer = await service.request(method, path(event_id, "X"))
        assert_problem(answer, 400, "invalid-id", ID_SENTENCE)


@pytest.mark.parametrize(
    ("method", "event_id", "allow"), [("POST", "call", "DELETE, PUT"), ("PUT", None, "GET, HEAD")]
)
async def test_another_method_is_told_which_there_are(
    service: ServiceHarness, method: str, event_id: str | None, allow: str
) -> None:
    answer = await service.request(method, path(event_id))
    assert_problem(answer, 405, "method-not-allowed")
    assert answer.headers["Allow"] == allow


PRECEDENCE: dict[str, tuple[str, str, str]] = {
    # the holder plans; the holder deletes what is not there; a stranger plans or deletes
    "held": ("", "no-event", "not-your-hold"),
    "overdue": ("hold-expired", "no-event", "not-your-hold"),
    "expired": ("hold-expired", "no-event", "not-your-hold"),
    "released": ("hold-released", "no-event", "not-your-hold"),
    "confirmed": ("", "no-event", "not-your-hold"),
    "missing": ("no-hold", "no-event", ""),
}
STATUS = {"hold-expired": 410, "hold-released": 410, "no-hold": 410}


@pytest.mark.parametrize("state", STATES)
async def test_who_may_plan_and_delete_is_as_the_contract_says(
    service: ServiceHarness, state: str
) -> None:
    await bring(service, state, ALICE, ["seat-2"])
    mine, gone, strange = PRECEDENCE[state]
    later = service.clock.now() + DAY
    before = everything(service)
    if strange:
        for answer in (
            await plan(service, "call", name="seat-2", holder=BOB),
            await plan(service, "call", name="seat-2"),
            await service.request("DELETE", path("call", "seat-2")),
            await service.request("GET", path(None, "seat-2")),
        ):
            assert_problem(answer, 403, "not-your-hold")
            assert answer.json["reservation"]["reservationId"] == "seat-2"
    headers = {"Reservation-Holder": ALICE}
    answer = await service.request("DELETE", path("call", "seat-2"), headers=headers)
    assert problem_of(answer) == (404, gone)
    assert everything(service) == before
    answer = await plan(service, "call", name="seat-2", holder=ALICE, runAt=later)
    if mine:
        assert_problem(answer, STATUS[mine], mine)
    else:
        assert answer.status == 201
    answer = await service.request("GET", path(None, "seat-2"), headers=headers)
    assert (answer.status, len(answer.json["items"])) == (200, 0 if mine else 1)


async def test_another_generation_is_refused_before_the_state(service: ServiceHarness) -> None:
    answer = await plan(service, "call", holder=ALICE, generation=7)
    assert_problem(answer, 409, "generation-mismatch")
    assert (await plan(service, "call", holder=ALICE, generation=1)).status == 201


async def test_anonymous_clients_share_a_schedule(service: ServiceHarness) -> None:
    await bring(service, "held", None, ["seat-2"])
    assert (await plan(service, "call", name="seat-2")).status == 201
    assert (await plan(service, "call", name="seat-2", holder=ALICE)).status == 403
    answer = await service.get(path(None, "seat-2"))
    assert [item["eventId"] for item in answer.json["items"]] == ["call"]


@pytest.mark.parametrize("holder", ["", "x" * 201, "tab\tin", "\udcff"])
async def test_a_header_that_is_no_holder_is_refused(service: ServiceHarness, holder: str) -> None:
    answer = await cancel(service, "call", holder)
    assert_problem(answer, 400, "invalid-field")
    assert answer.json["detail"].startswith("Reservation-Holder must be a string")


async def test_the_header_is_given_once(service: ServiceHarness) -> None:
    headers = [("Reservation-Holder", ALICE), ("Reservation-Holder", BOB)]
    answer = await service.request("GET", path(), headers=headers)
    assert_problem(answer, 400, "invalid-field", "Give Reservation-Holder once.")


async def test_a_holder_of_any_script_is_the_same_in_body_and_header(
    service: ServiceHarness,
) -> None:
    await bring(service, "held", "Zoë 🎫", ["seat-2"])
    await planned(service, "call", name="seat-2", holder="Zoë 🎫")
    answer = await service.request(
        "GET", path(None, "seat-2"), headers={"Reservation-Holder": "Zoë 🎫"}
    )
    assert answer.status == 200


async def test_beyond_100_events_the_next_is_refused_and_the_others_stay(
    service: ServiceHarness,
) -> None:
    for number in range(100):
        await planned(service, f"event-{number}", holder=ALICE, runAt=DEADLINE + number)
    answer = await plan(service, "one-more", holder=ALICE)
    sentence = "This reservation has 100 planned events; delete one first."
    assert_problem(answer, 409, "too-many-events", sentence)
    assert len(await shown(service, ALICE)) == 100
    assert (await plan(service, "event-7", holder=ALICE)).status == 200
    assert (await cancel(service, "event-7", ALICE)).status == 200
    assert (await plan(service, "one-more", holder=ALICE)).status == 201


async def test_a_deleted_event_is_not_there_any_more(service: ServiceHarness) -> None:
    await planned(service, "call", holder=ALICE)
    assert (await cancel(service, "call", BOB)).status == 403
    assert (await cancel(service, "call", ALICE)).status == 200
    assert_problem(await cancel(service, "call", ALICE), 404, "no-event")


async def test_no_answer_repeats_the_holder_of_a_schedule(service: ServiceHarness) -> None:
    answers = [
        await plan(service, "call", holder=ALICE),
        await plan(service, "call", holder=BOB),
        await schedule(service, ALICE),
        await schedule(service, BOB),
        await cancel(service, "call", ALICE),
    ]
    assert all(name.encode() not in one.body for one in answers for name in (ALICE, BOB))
