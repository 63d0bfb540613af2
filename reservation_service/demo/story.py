"""The story in acts. Each act does something to the real server and notes what it promised.

A promise is checked on what the server itself said: its answers, its log, its database.
"""

import asyncio
import itertools
import json
import sqlite3
from collections.abc import Awaitable, Callable, Sequence

import aiohttp

from reservation_service.demo import sabotage
from reservation_service.demo.server import Line, Server, ServerGone
from reservation_service.demo.stage import Look, Stage

TIME_LIMIT_S = 38.0
FAILURES = 2
SHORT_S = 5
LONG_S = 3600
TICK_MS = 1000
MARGIN_S = 0.3
"""How far past a deadline the server is still kept down."""

Act = Callable[[Stage, Server], Awaitable[None]]


async def tell(stage: Stage, server: Server) -> None:
    """All acts in order; whatever keeps the story from its end is a broken promise."""
    try:
        async with asyncio.timeout(TIME_LIMIT_S):
            for act in ACTS:
                await act(stage, server)
    except (TimeoutError, ServerGone, aiohttp.ClientError, sqlite3.Error) as error:
        reason = str(error) or "waited too long for what was to come"
        stage.promise("The story comes to its end", False, reason)


async def die_before_the_deadline(stage: Stage, server: Server) -> None:
    stage.act("Two holds, and a deadline that passes in the dark")
    await _start(stage, server)
    short = await _hold(stage, server, "demo-short", SHORT_S)
    long = await _hold(stage, server, "demo-long", LONG_S)
    await _kill(stage, server)
    stage.say(f"the server stays down until demo-short is over, {SHORT_S} s")
    await asyncio.sleep(SHORT_S + MARGIN_S)
    await _start(stage, server)
    await _check_the_wake_up(stage, server)
    await _check_expired(stage, server, short)
    await _check_untouched(stage, server, long)


async def replay_twice(stage: Stage, server: Server) -> None:
    stage.act("One expiry, replayed twice")
    held = await _hold(stage, server, "demo-replay", LONG_S)
    answers = [await server.replay("demo-replay", held["expiresAt"] + 1) for _ in range(2)]
    stage.show("demo-replay", Look.EXPIRED)
    changed = [answer["changed"] for answer in answers]
    counts = [answer["expirationCount"] for answer in answers]
    stage.promise(
        "A replayed expiry has its effect once",
        (changed, counts) == ([True, False], [1, 1]),
        f"changed {_words(changed)}, expirationCount {_words(counts)}",
    )


async def tick(stage: Stage, server: Server) -> None:
    stage.act("An event that repeats, beside the deadline on the one alarm")
    held = await _hold(stage, server, "demo-tick", LONG_S)
    await server.plan("demo-tick", "tick", held["createdAt"] + TICK_MS, TICK_MS)
    stage.say(f"tick is planned on demo-tick, every {TICK_MS} ms from now on, over every kill")
    await server.line("reservation-alarm", reservationId="demo-tick", outcome="ok")
    stage.say("tick")


async def fail_and_recover(stage: Stage, server: Server) -> None:
    stage.act("An alarm that fails, and a count that survives another kill")
    held = await _hold(stage, server, "demo-failing", SHORT_S)
    ticks = await server.schedule("demo-tick")
    await _kill(stage, server)
    sabotage.plant(server.database)
    stage.say("planted in the database: expiring demo-failing fails")
    await _start(stage, server)
    await _check_the_pace(stage, server, ticks)
    failures = await _watch_the_failures(stage, server)
    await _kill(stage, server)
    sabotage.remove(server.database)
    stage.say("the failure is taken out of the database")
    await _start(stage, server)
    await _check_the_count(stage, server, failures)
    await _check_expired(stage, server, held)


async def count_everything(stage: Stage, server: Server) -> None:
    stage.act("The record")
    status = await server.stop()
    stage.show("server", Look.DOWN)
    stage.promise("A stop is clean", status == 0, f"SIGTERM, exit status {status}")
    expiries = sabotage.expiries(server.database)
    stage.promise(
        "Every expiry is recorded once, with what triggered it",
        expiries == [("demo-short", "alarm"), ("demo-replay", "replay"), ("demo-failing", "alarm")],
        ", ".join(f"{name} by {trigger}" for name, trigger in expiries) or "none",
    )
    happened = sabotage.occurrences(server.database)
    stage.promise(
        "Every tick is recorded once, also over kill -9",
        len(happened) > 1 and all(map(_is_next, happened, happened[1:])),
        f"{len(happened)} ticks, {sum(missed for _, missed in happened)} missed in the dark",
    )


def _is_next(one: tuple[int, int], following: tuple[int, int]) -> bool:
    (at, missed), (next_at, _) = one, following
    return next_at == at + (missed + 1) * TICK_MS


ACTS: tuple[Act, ...] = (
    die_before_the_deadline,
    replay_twice,
    tick,
    fail_and_recover,
    count_everything,
)


async def _start(stage: Stage, server: Server) -> None:
    url = await server.start()
    stage.show("server", Look.UP)
    stage.say(f"the server listens on {url}")


async def _kill(stage: Stage, server: Server) -> None:
    await server.kill()
    stage.show("server", Look.KILLED)
    stage.show("server", Look.DOWN, in_s=0.01)
    stage.say("kill -9", "bold red")


async def _hold(stage: Stage, server: Server, name: str, seconds: int) -> Line:
    held = await server.hold(name, seconds)
    stage.show(name, Look.HELD)
    stage.show(name, Look.OVERDUE, in_s=seconds)
    stage.say(f"{name} is held for {seconds} s")
    return held


async def _check_the_wake_up(stage: Stage, server: Server) -> None:
    """Nobody calls until the alarm has run: the server's own access log is the witness."""
    alarm = await server.line("reservation-alarm", reservationId="demo-short", outcome="ok")
    stage.show("demo-short", Look.EXPIRED)
    reloaded = await server.line("alarms-reloaded")
    before = itertools.takewhile(lambda line: line is not alarm, server.runs[-1])
    calls = sum(line["event"] == "request" for line in before)
    stage.promise(
        "An alarm that came due in the dark is overdue at start",
        reloaded["overdue"] == 1,
        f"alarms-reloaded: overdue {reloaded['overdue']}",
    )
    stage.promise(
        "It fires without any request",
        calls == 0,
        f"{alarm['latenessMs']} ms after its time, with {calls} requests before",
    )


async def _check_expired(stage: Stage, server: Server, held: Line) -> None:
    name = held["reservationId"]
    now = await server.status(name)
    alarms = server.seen_ever("reservation-alarm", reservationId=name, outcome="ok")
    seen = (now["status"], now["expirationCount"], now["alarmAt"], len(alarms))
    stage.promise(
        f"{name} expired exactly once, by its alarm",
        seen == ("expired", 1, None, 1) and now["expiredAt"] >= held["expiresAt"],
        f"{now['status']}, expirationCount {now['expirationCount']},"
        f" alarmAt {_word(now['alarmAt'])}, successful alarms {len(alarms)}",
    )


async def _check_untouched(stage: Stage, server: Server, held: Line) -> None:
    name = held["reservationId"]
    now = await server.status(name)
    alarms = server.seen_ever("reservation-alarm", reservationId=name)
    kept = now == held and now["alarmAt"] == now["expiresAt"] and not alarms
    stage.promise(
        f"{name} survived kill -9 untouched, with its own alarm",
        kept,
        f"{now['status']}, {'the same' if now == held else 'ANOTHER'} answer as before the kill",
    )


async def _check_the_pace(stage: Stage, server: Server, before: list[Line]) -> None:
    await server.line("reservation-alarm", reservationId="demo-tick", outcome="ok")
    after = await server.schedule("demo-tick")
    moved = [now["runAt"] - then["runAt"] for then, now in zip(before, after, strict=True)]
    stage.promise(
        "A recurring event goes on after kill -9 and keeps its pace",
        len(moved) == 1 and moved[0] >= TICK_MS and moved[0] % TICK_MS == 0,
        f"the next tick is {_words(moved)} ms later than before the kill",
    )


async def _watch_the_failures(stage: Stage, server: Server) -> list[Line]:
    stage.say("waiting for demo-failing to be over")
    for nth in range(1, FAILURES + 1):
        failure = await server.line("reservation-alarm", nth, reservationId="demo-failing")
        stage.show("demo-failing", Look.FAILED)
        stage.say(f"attempt {nth}: {failure['outcome']}, retryCount {failure['retryCount']}")
    row = await server.status("demo-failing")
    failures = server.seen("reservation-alarm", reservationId="demo-failing")
    counts = [failure["retryCount"] for failure in failures]
    stage.promise(
        "A failed alarm is retried and counted, nothing is lost",
        {failure["outcome"] for failure in failures} == {"failed"}
        and counts == list(range(len(counts)))
        and (row["status"], row["expirationCount"]) == ("held", 0),
        f"{row['status']}, retryCount {_words(counts)}",
    )
    return failures


async def _check_the_count(stage: Stage, server: Server, failures: list[Line]) -> None:
    alarm = await server.line("reservation-alarm", reservationId="demo-failing")
    stage.say(f"next attempt: {alarm['outcome']}, retryCount {alarm['retryCount']}")
    stage.promise(
        "The retry count survives kill -9",
        alarm["isRetry"] and alarm["retryCount"] >= len(failures) >= FAILURES,
        f"isRetry {_word(alarm['isRetry'])}, retryCount {alarm['retryCount']}"
        f" after {len(failures)} failures",
    )
    await server.line("reservation-alarm", reservationId="demo-failing", outcome="ok")
    stage.show("demo-failing", Look.EXPIRED)


def _words(values: Sequence[object]) -> str:
    return ", ".join(map(_word, values))


def _word(value: object) -> str:
    return json.dumps(value)
