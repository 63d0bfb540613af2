"""The demo keeps its promises, notices a broken one, and leaves nothing behind."""

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reservation_service import demo
from reservation_service.config import PREFIX
from reservation_service.demo import sabotage, server, story
from reservation_service.demo.server import Line, Server
from reservation_service.demo.stage import Look, Stage

PROMISES = [
    "An alarm that came due in the dark is overdue at start",
    "It fires without any request",
    "demo-short expired exactly once, by its alarm",
    "demo-long survived kill -9 untouched, with its own alarm",
    "A replayed expiry has its effect once",
    "A recurring event goes on after kill -9 and keeps its pace",
    "A failed alarm is retried and counted, nothing is lost",
    "The retry count survives kill -9",
    "demo-failing expired exactly once, by its alarm",
    "A stop is clean",
    "Every expiry is recorded once, with what triggered it",
    "Every tick is recorded once, also over kill -9",
]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo puts its files; processes find this package where it is not installed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(demo.__file__).parents[2]))
    return tmp_path


def start() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "reservation_service", "demo"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


def leftovers(scratch: Path) -> list[str]:
    """Files in the scratch folder, and processes that were told of it."""
    commands = [
        path.read_bytes()
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if os.access(path, os.R_OK)
    ]
    processes = [text.decode() for text in commands if str(scratch).encode() in text]
    return processes + [path.name for path in scratch.iterdir()]


def test_the_demo_keeps_every_promise(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + "STORAGE__DATABASE", "/a/real/deployment.db")
    with start() as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert re.findall(r"^ *\d+\.\d s  kept: (.+) \(.*\)$", out, re.MULTILINE) == PROMISES
    verdict = re.fullmatch(
        r"Every promise was kept: 12 of 12, in (\d+\.\d) s", out.splitlines()[-1]
    )
    assert verdict is not None
    assert float(verdict[1]) < 40
    assert "\x1b" not in out
    assert leftovers(scratch) == []


@pytest.mark.parametrize(
    ("moment", "number", "status"),
    [
        ("Two holds", signal.SIGINT, 130),
        ("listens on", signal.SIGINT, 130),
        ("kill -9", signal.SIGINT, 130),
        ("kill -9", signal.SIGTERM, 143),
        ("kill -9", signal.SIGHUP, 143),
    ],
)
def test_an_interrupted_demo_leaves_nothing_behind(
    moment: str, number: int, status: int, scratch: Path
) -> None:
    with start() as process:
        assert process.stdout is not None
        assert any(moment in line for line in process.stdout)
        process.send_signal(number)
        _, err = process.communicate()
    assert process.returncode == status
    assert "Traceback" not in err
    assert leftovers(scratch) == []


# Controls: a demo that cannot fail would show nothing.


def perform(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *acts: story.Act
) -> tuple[int, str]:
    """These acts alone, with less to wait for; the exit status and what was printed."""
    monkeypatch.setattr(server, "CONFIG", server.CONFIG + "[reservations]\nttl_seconds_min = 1\n")
    monkeypatch.setattr(server, "PATIENCE_S", 6.0)
    monkeypatch.setattr(story, "SHORT_S", 2)
    monkeypatch.setattr(story, "ACTS", acts)
    return demo.run(), capsys.readouterr().out


async def opening(stage: Stage, server: Server) -> None:
    await server.start()


@pytest.mark.system  # it tests a test
def test_a_failure_that_is_never_removed_breaks_a_promise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], scratch: Path
) -> None:
    monkeypatch.setattr(sabotage, "remove", lambda _database: None)
    status, out = perform(monkeypatch, capsys, opening, story.tick, story.fail_and_recover)
    assert status == 1
    assert "kept: The retry count survives kill -9" in out
    assert "BROKEN: The story comes to its end (waited too long" in out
    assert "NOT every promise was kept: 3 of 4" in out
    assert leftovers(scratch) == []


@pytest.mark.parametrize("ticks", [[], [(1000, 0), (2001, 0)], [(1000, 0), (1000, 0)]])
def test_a_tick_that_is_lost_late_or_doubled_breaks_a_promise(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ticks: list[tuple[int, int]],
) -> None:
    async def stop(_self: Server) -> int:
        return 0

    monkeypatch.setattr(Server, "stop", stop)
    monkeypatch.setattr(sabotage, "expiries", lambda _database: [])
    monkeypatch.setattr(sabotage, "occurrences", lambda _database: ticks)
    status, out = perform(monkeypatch, capsys, story.count_everything)
    assert status == 1
    assert f"BROKEN: Every tick is recorded once, also over kill -9 ({len(ticks)} ticks" in out


def test_an_effect_that_happens_twice_breaks_a_promise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = Server.replay

    async def replay(self: Server, name: str, now: int) -> Line:
        return await honest(self, name, now) | {"changed": True}

    monkeypatch.setattr(Server, "replay", replay)
    status, out = perform(monkeypatch, capsys, opening, story.replay_twice)
    assert status == 1
    assert "BROKEN: A replayed expiry has its effect once (changed true, true" in out


@pytest.mark.system  # it tests a test
def test_a_request_before_the_alarm_breaks_a_promise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def start(self: Server) -> str:
        url = await honest(self)
        if len(self.runs) == 2:
            self.runs[-1].insert(0, {"event": "request"})
        return url

    honest = Server.start
    monkeypatch.setattr(Server, "start", start)
    status, out = perform(monkeypatch, capsys, story.die_before_the_deadline)
    assert status == 1
    assert re.search(r"BROKEN: It fires without any request \(.*, with 1 requests before\)", out)


@pytest.mark.parametrize(
    "lie", [{"expiresAt": 1}, {"status": "expired"}, {"generation": 2}, {"alarmAt": None}]
)
async def test_a_hold_that_was_touched_breaks_a_promise(
    lie: dict[str, Any], monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    held = {"reservationId": "demo-long", "status": "held", "expiresAt": 9, "alarmAt": 9}

    async def status(self: Server, name: str) -> Line:
        return held | lie

    monkeypatch.setattr(Server, "status", status)
    stage, silent = Stage(Console(file=io.StringIO())), Server(scratch)
    silent.runs.append([])
    await story._check_untouched(stage, silent, held)
    assert [promise.kept for promise in stage.promises] == [False]


def test_a_server_that_does_not_start_breaks_a_promise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "CONFIG", "[alarm]\n" + server.CONFIG)
    status, out = perform(monkeypatch, capsys, opening)
    assert status == 1
    assert "BROKEN: The story comes to its end (the server ended by itself:" in out
    assert "unknown key 'alarm'; did you mean alarms?" in out


def test_a_story_that_takes_too_long_breaks_a_promise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def never_end(stage: Stage, server: Server) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(story, "TIME_LIMIT_S", 0.01)
    status, out = perform(monkeypatch, capsys, never_end)
    assert (status, "NOT every promise was kept: 0 of 1" in out) == (1, True)


# The stage


def a_stage(**attributes: Any) -> tuple[Stage, Callable[[], str]]:
    file = io.StringIO()
    return Stage(Console(file=file, width=120, **attributes)), file.getvalue


def test_a_story_without_promises_keeps_none() -> None:
    stage, _ = a_stage()
    assert stage.verdict() == 1


def test_a_single_broken_promise_decides() -> None:
    stage, shown = a_stage()
    stage.promise("one", True, "this")
    stage.promise("two", False, "that")
    assert stage.verdict() == 1
    assert "NOT every promise was kept: 1 of 2" in shown()


def test_a_terminal_shows_live_lanes() -> None:
    stage, shown = a_stage(force_terminal=True)
    with stage:
        stage.show("server", Look.UP)
        stage.show("server", Look.KILLED)
        stage.show("demo-short", Look.HELD)
        stage.show("demo-short", Look.OVERDUE, in_s=60)
    assert "✗" in shown()
    assert "█" in shown()
    assert "▒" not in shown()


def test_anything_else_than_a_terminal_shows_no_lanes() -> None:
    stage, shown = a_stage()
    with stage:
        stage.show("server", Look.UP)
        stage.say("hello")
    assert shown() == "  0.0 s  hello\n"
