"""Bugs planted into dispatch, HTTP and the clock: `python -m tests.torture.planted_service BUG …`.

Those of `planted` can be had here, too. Two are no bugs but wait points that a harness needs: a
disk that takes its time, and an attempt that never ends.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from reservation_service import cli, errors, service
from reservation_service.actor import ReservationActor
from reservation_service.alarms import AlarmClock
from reservation_service.clock import BootClock
from reservation_service.feed import LATEST
from reservation_service.reservation import AlarmInfo, Outcome
from reservation_service.retry import RetryPolicy
from reservation_service.storage import sqlite, sqlite_alarms, sqlite_engine
from reservation_service.storage.lock import DatabaseLock
from reservation_service.web import events, server
from reservation_service.web.application import Surroundings
from reservation_service.web.connections import Connections
from reservation_service.web.streams import Readers, StreamLimits, StreamReader
from tests.torture.planted import bug, plant

SLOW_BATCH_S = 0.25
_YEAR_MS = 31_536_000_000


def _reword(name: str, old: str, new: str) -> None:
    """Change a part of an SQL statement."""
    statement = getattr(sqlite, name)
    assert old in statement, (name, old)
    setattr(sqlite, name, statement.replace(old, new))


@bug
def expire_too_early() -> None:
    """An expiry asks nobody whether the hold is over, and its alarm rings before its time."""
    _reword("EXPIRE", "AND r.expires_at <= m.now", "")
    _reword("DUE", "alarm_dispatch_at <= :now", "alarm_dispatch_at <= :now + 700")


@bug
def confirm_without_deadline() -> None:
    """Whoever asks before the alarm has run is in time."""
    _reword("CONFIRM", "AND r.expires_at > :now", "")


@bug
def let_the_last_one_win() -> None:
    """A hold takes what somebody else holds."""
    _reword("SORT_NAMED", "r.status IN ('held', 'confirmed')", "r.status = 'confirmed'")
    guard = "(reservation.status = 'held' AND reservation.holder = x'' AND excluded.holder = x'')"
    _reword("HOLD", guard, "reservation.status = 'held'")


@bug
def drift_from_the_plan() -> None:
    """What repeats is planned anew from the time at which it happened."""
    advanced = "s.run_at + s.repeat_ms * ((:now - s.run_at) / s.repeat_ms + 1)"
    _reword("FIRE_ADVANCE", advanced, ":now + s.repeat_ms")


@bug
def lose_what_repeats() -> None:
    """What has happened is taken off the schedule, though it repeats."""
    _reword("FIRE_DROP", " AND repeat_ms IS NULL", "")


@bug
def forget_what_is_next() -> None:
    """After an event the slot is set to the deadline, whatever else is planned."""
    _reword("PLAN_FIRED", "r.id = n.id AND r.alarm_at IS NOT n.alarm_at", "r.id = n.id")
    _reword("PLAN_FIRED", "SET alarm_at = n.alarm_at", "SET alarm_at = r.expires_at")
    for column in ("max(r.alarm_dispatch_at, n.alarm_at)", "ELSE n.alarm_at END"):
        _reword("PLAN_FIRED", column, column.replace("n.alarm_at", "r.expires_at"))


@bug
def forget_alarms_at_start() -> None:
    """Only what was planned by this process is dispatched."""
    _reword("DUE", "alarm_dispatch_at <= :now", f"alarm_at BETWEEN {_wall_ms()} AND :now")


@bug
def drop_what_is_late() -> None:
    """An alarm more than a second late is left alone."""
    _reword("DUE", "alarm_dispatch_at <= :now", "alarm_dispatch_at BETWEEN :now - 1000 AND :now")


@bug
def count_retries_in_memory() -> None:
    """A start begins to count anew."""
    sqlite_alarms.RECOVER = """
        UPDATE reservation SET alarm_claim = NULL, alarm_attempts = 0, alarm_dispatch_at = alarm_at
        WHERE alarm_attempts > 0 AND :now + :cap_ms + :first_ms + :seed
    """


@bug
def give_up() -> None:
    """An alarm that failed once is put off for a year."""
    _put(RetryPolicy, "delay_ms", lambda _self, _failures: _YEAR_MS)


@bug
def queue_behind_the_failing() -> None:
    """An attempt waits until the one before it has succeeded or been put off."""
    turn, attempt = asyncio.Lock(), AlarmClock._dispatch

    async def in_turn(self: AlarmClock, claimed: Any, *begun: Any) -> Any:
        async with turn:
            verdict = await attempt(self, claimed, *begun)
            if verdict.name != "MOVED":
                await asyncio.sleep(1)
            return verdict

    _put(AlarmClock, "_dispatch", in_turn)
    _begin_no_expiry()


@bug
def linger_in_attempts() -> None:
    """No bug: an attempt that was counted never comes to its effect, and can be killed there."""

    async def alarm(self: ReservationActor, info: AlarmInfo, expiry: None) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    _put(ReservationActor, "alarm", alarm)
    _begin_no_expiry()


@bug
def wait_for_every_client() -> None:
    """A stop gives clients as long as they like to finish what they began."""
    service.STOP_SECONDS_MAX = 60.0
    server.SHUTDOWN_SECONDS = server.SHUTDOWN_AFTER_FAILURE_SECONDS = 30.0


@bug
def follow_the_wall_clock() -> None:
    """Service time is whatever the wall clock says."""
    _put(BootClock, "now", lambda _self: _wall_ms())
    _put(BootClock, "seconds_until", lambda _self, at_ms: (at_ms - _wall_ms()) / 1000)


@bug
def ignore_the_file() -> None:
    """Nobody looks whether the database is still the same file."""
    _put(sqlite.BatchTransaction, "_require_same_file", lambda _self: None)


@bug
def survive_damage() -> None:
    """A database that cannot be used any more is a passing trouble."""
    errors.DatabaseUnusable.fatal = False


@bug
def share_the_database() -> None:
    """Any number of processes may serve one database."""

    class NoLock(DatabaseLock):
        def __init__(self, database: object) -> None:
            self.file = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    _put(sqlite_engine, "DatabaseLock", NoLock)


@bug
def admit_everybody() -> None:
    """No connection is ever closed to make room or for saying nothing."""

    async def watch(self: Connections) -> None:
        await asyncio.Event().wait()

    _put(Connections, "admit", lambda _self, server: server.__call__)
    _put(Connections, "watch", watch)
    server.KEEPALIVE_SECONDS = 3600.0


@bug
def read_any_body() -> None:
    """A body may be as long as it likes."""
    build = Surroundings.build_app
    _put(Surroundings, "build_app", lambda self, routes, _limit: build(self, routes, 1 << 40))


@bug
def log_what_clients_say() -> None:
    """Paths go into the log as they came, line ends and all."""
    log = server._AccessLog.log

    def log_raw(self: Any, request: web.BaseRequest, response: Any, time: float) -> None:
        sys.stdout.buffer.write(request.path.encode() + b"\n")
        log(self, request, response, time)

    _put(server._AccessLog, "log", log_raw)


@bug
def remember_every_request() -> None:
    """Requests are never forgotten."""
    remembered: list[object] = []
    surround = Surroundings._surround

    async def keep(self: Surroundings, routing: Any, request: web.Request) -> web.StreamResponse:
        remembered.append((request, bytearray(16_384)))
        return await surround(self, routing, request)

    _put(Surroundings, "_surround", keep)


@bug
def slow_disk() -> None:
    """No bug: every transaction waits before it begins."""
    run = sqlite.BatchTransaction.__call__
    never = threading.Event()

    def run_late(self: Any, connection: Any, messages: Sequence[Any]) -> Any:
        never.wait(SLOW_BATCH_S)
        return run(self, connection, messages)

    _put(sqlite.BatchTransaction, "__call__", run_late)


@bug
def linger_at_every_reader() -> None:
    """Each reader of a stream costs the event loop a millisecond."""
    take, never = StreamReader.take, threading.Event()

    def take_its_time(self: StreamReader, text: bytes) -> None:
        never.wait(0.001)
        take(self, text)

    _put(StreamReader, "take", take_its_time)


@bug
def buffer_without_bound() -> None:
    """Whatever a reader does not read waits for it."""
    _put(service, "StreamLimits", lambda heartbeat_s, _: StreamLimits(heartbeat_s, 1 << 30))


@bug
def resume_at_the_end() -> None:
    """Whoever comes again hears of new events only."""
    _put(events, "_resumed", lambda _request: LATEST)


@bug
def resume_with_the_last() -> None:
    """Whoever comes again is told its last event once more."""
    resumed = events._resumed

    def resume_before(request: web.Request) -> int | None:
        position = resumed(request)
        return position and max(0, position - 1)

    _put(events, "_resumed", resume_before)


@bug
def keep_readers_at_a_stop() -> None:
    """A stop does not end streams, and waits for them as long as for anybody."""

    async def close(self: Readers, _app: web.Application) -> None:
        return

    _put(Readers, "close", close)
    service.STOP_SECONDS_MAX = 60.0
    server.SHUTDOWN_SECONDS = 3.0


def _begin_no_expiry() -> None:
    """Every attempt has a task of its own."""
    _put(ReservationActor, "begin_expiry", lambda _self, _retry_count, _then: None)


def _put(owner: object, name: str, by: object) -> None:
    """Replace a piece of the product."""
    assert hasattr(owner, name), (owner, name)
    setattr(owner, name, by)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    plant(sys.argv[1])
    cli.main(sys.argv[2:])
