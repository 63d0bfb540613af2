"""What a scrape says is what happened, and its size does not depend on who came by."""

import asyncio

import pytest

from reservation_service import monitoring
from reservation_service.errors import StorageFull, StorageUnavailable
from reservation_service.metrics import Metrics, Standing
from reservation_service.storage.log_tally import LogTally
from reservation_service.storage.sqlite_start import COUNTED_MAX
from reservation_service.storage.sqlite_tally import Tally
from reservation_service.store import Claim
from tests.conftest import StartService
from tests.contract.engines import planted
from tests.support.harness import ServiceHarness
from tests.support.metrics import Samples, names, samples
from tests.support.rows import Row, insert
from tests.support.waiting import WAIT_SECONDS_MAX

PENDING = "reservation_alarms_pending"
OVERDUE = "reservation_alarms_overdue"
STUCK = "reservation_alarms_stuck"


async def scrape(service: ServiceHarness) -> Samples:
    answer = await service.get("/metrics")
    assert (answer.status, answer.headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    return samples(answer.body.decode())


def transitions(found: Samples) -> dict[tuple[str, str], float]:
    told = {}
    for name, value in found.items():
        if name.startswith("reservation_transitions_total"):
            _, kind, _, trigger, _ = name.split('"')
            told[kind, trigger] = value
    return told


def answered(route: str, status: int) -> str:
    return f'reservation_http_requests_total{{route="{route}",status="{status}"}}'


async def test_requests_are_counted_by_route_and_status(service: ServiceHarness) -> None:
    for number in range(3):
        await service.hold(f"seat-{number}")
    await service.post("/reservations/NO", {"ttlSeconds": 60})
    await service.get("/nowhere")
    await service.request("PUT", "/reservations/seat-1")
    found = await scrape(service)
    assert found[answered("POST /reservations/{id}", 201)] == 3
    assert found[answered("POST /reservations/{id}", 400)] == 1
    assert found[answered("none", 404)] == 1
    assert found[answered("none", 405)] == 1
    assert found['reservation_http_request_seconds_count{route="POST /reservations/{id}"}'] == 4


def test_a_duration_is_in_the_bucket_that_it_is_no_longer_than() -> None:
    metrics = Metrics()
    for seconds in (0.001, 0.0011, 4.9, 60):
        metrics.count_request("GET /", 200, seconds)
    found = samples(metrics.render(Standing(0, 0, 0, 0, 0)).decode())
    buckets = {
        name.split('le="')[1].split('"')[0]: value
        for name, value in found.items()
        if name.startswith("reservation_http_request_seconds_bucket")
    }
    assert (buckets["0.001"], buckets["0.0025"], buckets["2.5"]) == (1, 2, 2)
    assert (buckets["5.0"], buckets["+Inf"]) == (3, 4)
    assert found['reservation_http_request_seconds_sum{route="GET /"}'] == pytest.approx(64.9021)


async def test_names_and_paths_make_no_series(service: ServiceHarness) -> None:
    async def visit(number: int) -> None:
        await service.hold(f"seat-{number}")
        await service.get(f"/reservations/seat-{number}?x={number}")
        await service.get(f"/elsewhere/{number}")
        await service.request("BREW", f"/reservations/seat-{number}")

    await visit(0)
    await scrape(service)
    before = (await scrape(service)).keys()
    for number in range(1, 30):
        await visit(number)
    assert (await scrape(service)).keys() == before


async def test_transitions_are_counted_by_kind_and_trigger(service: ServiceHarness) -> None:
    for name in ("alarm", "replay", "taken-over", "released", "confirmed"):
        await service.hold(name, 60)
    await service.replay("replay", service.clock.now() + 60_000)
    for name in ("released", "confirmed"):
        verb = name.removesuffix("ed").removesuffix("d") + ("e" if name == "released" else "")
        answer = await service.post(f"/reservations/{name}/{verb}", {})
        assert answer.status == 200, answer
    await service.post("/reservations/alarm/extend", {"ttlSeconds": 70})
    door = service.gates.before(lambda message: isinstance(message, Claim))
    service.clock.advance(60_000)
    await door.reached()
    await service.hold("taken-over", 600)
    door.open()
    await service.advance(10_000)
    assert transitions(await scrape(service)) == {
        ("held", "request"): 6,
        ("expired", "alarm"): 1,
        ("expired", "replay"): 1,
        ("expired", "request"): 1,
        ("released", "request"): 1,
        ("confirmed", "request"): 1,
        ("extended", "request"): 1,
    }


async def test_what_was_rolled_back_is_not_counted(service: ServiceHarness) -> None:
    await service.hold("seat-1", 60)
    service.poison.plant("seat-1")
    await service.advance(60_000)
    found = await scrape(service)
    assert transitions(found) == {("held", "request"): 1, ("alarm-failed", "alarm"): 1}
    assert found[PENDING] == 1


async def test_pending_is_what_the_table_says_whatever_happened(
    start_service: StartService,
) -> None:
    service = await start_service()
    for number in range(4):
        await service.hold(f"old-{number}", 60 + number)
    await service.stop()
    await service.start()
    assert (await scrape(service))[PENDING] == 4
    await service.hold("new", 60)
    await service.hold("new", 90)  # anonymous again: reset
    await service.post("/reservations/old-0/release", {})
    await service.post("/reservations/old-1/confirm", {})
    found = await scrape(service)
    assert found[PENDING] == 3
    await service.advance(100_000)
    assert (await scrape(service))[PENDING] == 0
    await service.hold("new", 60)
    assert (await scrape(service))[PENDING] == 1


async def test_each_event_is_counted_once_however_often_one_looks(
    start_service: StartService,
) -> None:
    service = await start_service()
    await service.hold("before", 60)
    await service.stop()
    await service.start()
    for number in range(1, 4):
        await service.hold(f"seat-{number}", 60)
        for _ in range(2):
            assert transitions(await scrape(service)) == {("held", "request"): number}


async def test_scrapes_at_once_count_once(service: ServiceHarness) -> None:
    await service.hold("seat-1", 60)
    for found in await asyncio.gather(*(scrape(service) for _ in range(5))):
        assert transitions(found) == {("held", "request"): 1}
    await service.hold("seat-2", 60)
    assert transitions(await scrape(service)) == {("held", "request"): 2}


async def test_overdue_and_stuck_are_counted_and_no_further_than_the_limit(
    service: ServiceHarness,
) -> None:
    await service.quiet()
    door = service.gates.before(lambda message: isinstance(message, Claim))
    now = service.clock.now()
    plant(service, *(due(f"due-{number}", now - 5_000, 0) for number in range(3)))
    plant(service, *(due(f"stuck-{number}", now + 5_000, 6) for number in range(2)))
    plant(service, due("tried", now + 5_000, 5), due("at-work", now + 5_000, 6, claim=1))
    found = await scrape(service)
    assert (found[OVERDUE], found[STUCK]) == (3, 2)
    assert found["reservation_alarms_overdue_seconds"] == 5
    plant(service, *(due(f"more-{number}", now - 1, 7) for number in range(COUNTED_MAX + 5)))
    found = await scrape(service)
    assert (found[OVERDUE], found[STUCK]) == (COUNTED_MAX, COUNTED_MAX)
    door.open()


async def test_lateness_is_that_of_first_attempts(service: ServiceHarness) -> None:
    await service.hold("seat-1", 60)
    await service.hold("seat-2", 60)
    service.poison.plant("seat-2")
    await service.advance(60_000)
    await service.advance(2_000)
    found = await scrape(service)
    assert found["reservation_alarm_lateness_seconds_count"] == 2
    assert found["reservation_alarm_lateness_seconds_sum"] == 0
    attempts = "reservation_alarm_attempts_total"
    assert found[f'{attempts}{{outcome="ok"}}'] == 1
    assert found[f'{attempts}{{outcome="failed"}}'] == 2
    assert found[f'{attempts}{{outcome="timed-out"}}'] == 0


async def test_batches_are_measured_and_their_failures_counted(service: ServiceHarness) -> None:
    before = await scrape(service)
    await service.hold("seat-1")
    found = await scrape(service)
    for part in ("seconds_count", "batch_size_count", "batch_size_sum"):
        name = f"reservation_commit_{part}"
        assert found[name] == before[name] + 1
    assert found["reservation_commit_queue_depth"] == 0
    assert found["reservation_database_bytes"] + found["reservation_wal_bytes"] > 0
    assert found["reservation_clock_divergence_seconds"] == 0
    assert found["reservation_feed_readers"] == 0


async def test_a_pause_is_shown_as_long_as_it_lasts(service: ServiceHarness) -> None:
    await service.hold("seat-1", 60)
    assert (await scrape(service))["reservation_dispatch_paused"] == 0
    service.poison.plant()
    with service.gates.failing(StorageFull()):
        service.clock.advance(60_000)
        await service.recorder.seen("dispatch-paused")
        await service.waker.asleep()
        assert (await scrape(service))["reservation_dispatch_paused"] == 1
    await service.look()
    assert (await scrape(service))["reservation_dispatch_paused"] == 0


async def test_a_scrape_does_not_wait_for_a_disk_that_hangs(
    service: ServiceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PENDING in await scrape(service)
    disk = asyncio.Event()
    count = LogTally.count

    async def hang(tally: LogTally) -> Tally:
        await disk.wait()
        return await count(tally)

    monkeypatch.setattr(LogTally, "count", hang)
    monkeypatch.setattr(monitoring, "SAMPLE_SECONDS_MAX", 0.01)
    for _ in range(3):
        found = await scrape(service)
        assert PENDING not in found
        assert "reservation_commit_queue_depth" in found
    disk.set()
    monkeypatch.setattr(monitoring, "SAMPLE_SECONDS_MAX", WAIT_SECONDS_MAX)
    assert PENDING in await scrape(service)


async def test_a_count_that_takes_long_holds_up_nothing_that_is_looked_up(
    service: ServiceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = asyncio.Event()

    async def count_for_ever(_: LogTally) -> Tally:
        await end.wait()
        raise StorageUnavailable

    monkeypatch.setattr(LogTally, "count", count_for_ever)
    monkeypatch.setattr(monitoring, "SAMPLE_SECONDS_MAX", 0.5)
    found = await scrape(service)
    assert found[OVERDUE] == 0
    assert PENDING not in found
    end.set()


async def test_every_name_is_there_from_the_first_scrape(service: ServiceHarness) -> None:
    first = names((await service.get("/metrics")).body.decode())
    await service.hold("seat-1", 60)
    await service.advance(60_000)
    assert names((await service.get("/metrics")).body.decode()) == first
    assert len(first) > 30


def due(name: str, at: int, attempts: int, claim: int | None = None) -> Row:
    """A hold whose alarm is tried next at `at`, after so many attempts."""
    times = {"created_at": 1, "expires_at": 2, "alarm_at": 2, "alarm_dispatch_at": at}
    if not attempts:
        times |= {"expires_at": at, "alarm_at": at}
    return planted(name, alarm_attempts=attempts, alarm_claim=claim, **times)


def plant(service: ServiceHarness, *rows: Row) -> None:
    insert(service.database, *rows)
