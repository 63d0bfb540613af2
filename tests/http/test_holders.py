"""Holders: what may be one, how many holds it may have, and that it stays a secret."""

import asyncio
import hashlib
import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest

from reservation_service.reservation import Hold, Release
from reservation_service.telemetry import Telemetry
from tests.conftest import StartService
from tests.http.answers import assert_problem
from tests.http.bookings import (
    DEADLINE,
    TTL_MS,
    alarms_held_back,
    bring,
    changed,
    confirm,
    everything,
    extend,
    held,
    hold,
    path,
    release,
)
from tests.support.harness import Answer, ServiceHarness
from tests.support.rows import row, rows
from tests.support.waiting import bounded

ALICE, BOB = "alice-4711", "bob-0815"
SENTENCE = "holder must be a string of 1 through 200 characters without control characters."
SECRET = "s3cr3t-of-alice-é-🎫"

GOOD = [
    "x",
    "a" * 200,
    "🎫" * 200,
    "é" * 200,
    " ",
    "naïve name",
    '"\\',
    "null",
    "0",
    "\u200d",
    "\ufffd",
]
BAD: list[object] = [
    *("", "a" * 201, "🎫" * 201, None, 5, 1.5, True, False, [], ["x"], {}, {"x": 1}),
    *("\n", "a\n", "\x00", "a\x00b", "\t", "\x1b[31m", "\x7f", "\x80", "\x9f", "a\r\n"),
]


def document(holder: object, verb: str) -> dict[str, object]:
    ttl: dict[str, object] = {"ttlSeconds": 60} if verb in {"hold", "extend"} else {}
    return ttl | {"holder": holder}


@pytest.mark.parametrize("holder", GOOD, ids=range(len(GOOD)))
async def test_a_string_of_1_to_200_characters_is_a_holder(
    service: ServiceHarness, holder: str
) -> None:
    assert (await service.post(path("seat-1"), document(holder, "hold"))).status == 201
    stored = row(service.database, "seat-1")["holder"]
    assert stored == hashlib.sha256(holder.encode()).digest()
    for verb in ("extend", "confirm"):
        assert (await service.post(path("seat-1", verb), document(holder, verb))).status == 200


@pytest.mark.parametrize("verb", ["hold", "extend", "confirm", "release"])
async def test_anything_else_is_no_holder(service: ServiceHarness, verb: str) -> None:
    await bring(service, "held", None, ["seat-1"])
    before = everything(service)
    for holder in BAD:
        answer = await service.post(path("seat-1", verb), document(holder, verb))
        assert_problem(answer, 400, "invalid-field", SENTENCE)
    assert everything(service) == before


async def test_half_a_character_is_no_json(service: ServiceHarness) -> None:
    for text in ('"\\ud83c"', '"\\udfab\\ud83c"'):
        answer = await service.request(
            "POST",
            path("seat-1"),
            data=f'{{"ttlSeconds": 60, "holder": {text}}}',
            headers={"Content-Type": "application/json"},
        )
        assert_problem(answer, 400, "invalid-body")


async def test_holders_are_the_same_only_when_every_character_is(service: ServiceHarness) -> None:
    held(await hold(service, "seat-1", "Alice"))
    for other in ("alice", "Alice ", " Alice", "Alic\u00e9", "Al\u0456ce"):
        assert_problem(await confirm(service, "seat-1", other), 403, "not-your-hold")
    held(await hold(service, "seat-2", "caf\u00e9"))
    assert_problem(await confirm(service, "seat-2", "cafe\u0301"), 403, "not-your-hold")


async def test_the_digest_itself_opens_nothing(service: ServiceHarness) -> None:
    held(await hold(service, "seat-1", ALICE))
    digest = hashlib.sha256(ALICE.encode()).hexdigest()
    assert_problem(await release(service, "seat-1", digest), 403, "not-your-hold")


async def test_anonymous_holds_can_be_turned_off(start_service: StartService) -> None:
    service = await start_service(reservations={"require_holder": True})
    answer = await hold(service, "seat-1")
    assert_problem(answer, 400, "invalid-field")
    assert answer.json["error"].startswith("holder is required")
    assert rows(service.database) == []
    held(await hold(service, "seat-1", ALICE))


async def test_anonymous_holds_from_before_run_out_as_they_were_promised(
    start_service: StartService,
) -> None:
    service = await start_service()
    held(await hold(service, "seat-1"))
    held(await hold(service, "seat-2"))
    await service.stop()
    service.sections = {"reservations": {"require_holder": True}}
    await service.start()
    changed(await confirm(service, "seat-1"))
    await service.advance(TTL_MS)
    assert (await service.status("seat-2"))["status"] == "expired"


async def test_a_holder_may_have_twenty_holds_by_default(service: ServiceHarness) -> None:
    names = [f"seat-{number}" for number in range(30)]
    answers = await bounded(
        asyncio.gather(*(hold(service, name, ALICE) for name in names)), "all holds"
    )
    refused = [answer for answer in answers if answer.status != 201]
    assert len(rows(service.database)) == 20
    assert len(refused) == 10
    for answer in refused:
        assert_problem(answer, 429, "too-many-holds")
        assert answer.headers["Retry-After"] == "60"
        assert answer.json["reservation"]["status"] == "missing"


async def test_the_limit_counts_live_holds_of_one_named_holder(
    start_service: StartService,
) -> None:
    service = await start_service(reservations={"max_holds_per_holder": 2})
    held(await hold(service, "seat-1", ALICE, ttl=30))
    held(await hold(service, "seat-2", ALICE))
    before = everything(service)
    answer = await hold(service, "seat-3", ALICE)
    assert_problem(answer, 429, "too-many-holds")
    assert answer.headers["Retry-After"] == "30"
    assert everything(service) == before
    held(await hold(service, "seat-1", ALICE, ttl=5))
    held(await hold(service, "seat-3", BOB))
    for number in range(4, 8):
        held(await hold(service, f"seat-{number}"))
    changed(await confirm(service, "seat-2", ALICE))
    held(await hold(service, "seat-8", ALICE))
    assert_problem(await hold(service, "seat-9", ALICE), 429, "too-many-holds")
    changed(await release(service, "seat-8", ALICE))
    held(await hold(service, "seat-9", ALICE))


async def test_a_hold_past_its_deadline_does_not_count_though_its_alarm_has_not_run(
    start_service: StartService,
) -> None:
    service = await start_service(reservations={"max_holds_per_holder": 1})
    held(await hold(service, "seat-1", ALICE))
    with alarms_held_back(service):
        service.clock.advance(TTL_MS - 1)
        answer = await hold(service, "seat-2", ALICE)
        assert_problem(answer, 429, "too-many-holds")
        assert answer.headers["Retry-After"] == "1"
        service.clock.advance(1)
        held(await hold(service, "seat-2", ALICE))


async def test_what_somebody_else_has_is_told_before_the_limit(
    start_service: StartService,
) -> None:
    service = await start_service(reservations={"max_holds_per_holder": 1})
    held(await hold(service, "seat-1", ALICE))
    held(await hold(service, "seat-2", BOB))
    await bring(service, "confirmed", None, ["seat-3"])
    assert_problem(await hold(service, "seat-2", ALICE), 409, "already-held")
    assert_problem(await hold(service, "seat-3", ALICE), 409, "already-confirmed")


async def test_no_limit_is_a_limit_of_none(start_service: StartService) -> None:
    service = await start_service(reservations={"max_holds_per_holder": 0})
    names = [f"seat-{number}" for number in range(30)]
    answers = await bounded(
        asyncio.gather(*(hold(service, name, ALICE) for name in names)), "all holds"
    )
    assert {answer.status for answer in answers} == {201}


async def test_a_hold_beyond_the_limit_is_told_so_though_the_others_end_beside_it(
    start_service: StartService,
) -> None:
    service = await start_service(reservations={"max_holds_per_holder": 1})
    held(await hold(service, "seat-1", ALICE))
    first = service.gates.batch(lambda batch: batch[0].id == "first")
    waiting = asyncio.create_task(hold(service, "first"))
    await first.reached()
    come = service.gates.count(
        lambda message: isinstance(message, Hold | Release) and message.holder != b""
    )
    beyond = asyncio.create_task(hold(service, "seat-2", ALICE))
    ending = asyncio.create_task(release(service, "seat-1", ALICE))
    await come.reached(2)
    first.open()
    answers = await bounded(asyncio.gather(waiting, beyond, ending), "all three")
    assert [answer.status for answer in answers] == [201, 429, 200]
    assert_problem(answers[1], 429, "too-many-holds")
    assert answers[1].headers["Retry-After"] == "1"


async def everything_said_to(service: ServiceHarness, secret: str) -> list[Answer]:
    """Each call with this holder, granted and refused, in every way that is easily brought about;
    the last one fails inside the store."""
    answers = [await service.post(path("seat-1"), {"ttlSeconds": 4, "holder": secret})]
    answers.append(await service.post(path("seat-1"), {"ttlSecond": 60, "holder": secret}))
    answers.append(await service.post(path("X"), {"ttlSeconds": 60, "holder": secret}))
    answers += [await hold(service, "seat-1", secret) for _ in range(2)]
    answers += [await hold(service, f"seat-{number}", secret) for number in range(2, 5)]
    for holder in (BOB, secret):
        for call in (hold, extend, confirm, release, confirm):
            answers.append(await call(service, "seat-1", holder))
    await service.advance(TTL_MS)
    answers += [await confirm(service, "seat-2", secret) for _ in range(2)]
    held(await hold(service, "seat-2", BOB))
    answers.append(await confirm(service, "seat-2", secret, ifStillFree=True))
    answers += [await service.get("/reservations/seat-1"), await service.get("/reservations")]
    _fail_every_hold(service)
    answers.append(await hold(service, "seat-7", secret))
    return answers


def _fail_every_hold(service: ServiceHarness) -> None:
    service.poison._run(
        lambda connection: connection.executescript(
            """CREATE TRIGGER fail BEFORE INSERT ON event WHEN NEW.type = 'held'
               BEGIN SELECT RAISE(ABORT, 'planted'); END;"""
        )
    )


def spellings(secret: str) -> Iterator[bytes]:
    """The secret as it could be found in a text or a file."""
    yield secret.encode()
    yield json.dumps(secret)[1:-1].encode()
    yield repr(secret)[1:-1].encode()
    yield secret[:14].encode()


def digests(secret: str) -> Iterator[bytes]:
    digest = hashlib.sha256(secret.encode())
    yield digest.digest()
    yield digest.hexdigest().encode()


async def test_a_holder_is_never_repeated_nor_written_down(
    start_service: StartService, recorder: Any, clock: Any
) -> None:
    stream = BytesIO()
    telemetry, observe = Telemetry(clock, stream), recorder.observe

    def observe_and_log(name: str, **fields: object) -> None:
        observe(name, **fields)
        telemetry.observe(name, **fields)

    recorder.observe = observe_and_log
    service = await start_service(reservations={"max_holds_per_holder": 3}, log={"access": True})
    answers = await everything_said_to(service, SECRET)
    assert {answer.status for answer in answers} == {200, 201, 400, 403, 409, 410, 429, 500}
    said = [answer.body + repr(answer.headers).encode() for answer in answers]
    telemetry.flush()
    logged = stream.getvalue()
    assert b'"event":"request"' in logged
    assert b'"event":"request-failed"' in logged
    for needle in [*spellings(SECRET), *digests(SECRET)]:
        assert not any(needle in one for one in said)
        assert needle not in logged
        assert needle not in repr(everything(service)[1]).encode()
    await service.stop()
    files = b"".join(file.read_bytes() for file in service.database.parent.iterdir())
    assert not any(needle in files for needle in spellings(SECRET))
    assert next(digests(SECRET)) in files


async def test_a_holder_is_not_in_the_files_of_a_running_service(service: ServiceHarness) -> None:
    held(await hold(service, "seat-1", SECRET))
    files = {file.name: file.read_bytes() for file in service.database.parent.iterdir()}
    assert "reservations.db-wal" in files
    everywhere = b"".join(files.values())
    assert not any(needle in everywhere for needle in spellings(SECRET))
    assert next(digests(SECRET)) in everywhere


async def test_going_back_hides_nothing_from_ones_own_self(service: ServiceHarness) -> None:
    held(await hold(service, "seat-1", ALICE))
    changed(await release(service, "seat-1", ALICE))
    again = held(await hold(service, "seat-1", ALICE))
    assert (again["status"], again["generation"], again["expiresAt"]) == ("held", 2, DEADLINE)
