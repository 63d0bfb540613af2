"""What the command line promises: one sentence and a status for every refusal, no stack trace."""

import asyncio
import io
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import aiohttp
import pytest

from reservation_service import cli, service
from reservation_service.config import PREFIX, Settings
from reservation_service.demo.server import Server
from reservation_service.errors import StartupError


class Ended(NamedTuple):
    """How a command ended."""

    status: int | str | None
    out: str
    err: str


class Fakes(SimpleNamespace):
    """Stands in for the service: keeps the settings it was called with, does as it was told."""

    calls: list[tuple[str, Settings]]
    answers: dict[str, object]

    def act(self, name: str, settings: Settings) -> object:
        self.calls.append((name, settings))
        answer = self.answers[name]
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def _an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory; processes still find this package where it is not installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(cli.__file__).parents[1]))


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fakes]:
    fakes = Fakes(calls=[], answers={"serve": 0, "migrate": [], "destroy": 0})
    for name in fakes.answers:

        async def fake(settings: Settings, name: str = name) -> object:
            return fakes.act(name, settings)

        monkeypatch.setattr(service, name, fake)
    return fakes


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> "Run":
    return Run(capsys)


class Run:
    """Runs a command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ended:
        with pytest.raises(SystemExit) as end:
            cli.main(arguments)
        return Ended(end.value.code, *self._capsys.readouterr())


def refused(sentence: str) -> Ended:
    return Ended(1, "", f"reservation-service: {sentence}\n")


@pytest.mark.parametrize(
    "name",
    [
        *("serve", "keys", "migrate", "demo", "destroy"),
        *("status", "list", "show", "tail", "backup", "check"),
    ],
)
def test_every_command_has_help(name: str, run: Run) -> None:
    assert f"  {name} " in run("--help").out
    ended = run(name, "--help")
    assert ended.status == 0
    assert f"Usage: reservation-service {name}" in ended.out


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["serve", "--nonsense"], ["serve", "--port", "http"], ["destroy", "extra"]],
)
def test_a_command_line_that_is_not_understood_is_a_usage_error(
    arguments: list[str], run: Run, fakes: Fakes
) -> None:
    ended = run(*arguments)
    assert (ended.status, ended.out, fakes.calls) == (2, "", [])
    assert ended.err.startswith("Usage: reservation-service ")


def test_the_version_is_the_package_s(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: f"1.2.3 of {name}")
    assert run("--version") == Ended(0, "reservation-service 1.2.3 of reservation-service\n", "")


def test_a_package_that_is_not_installed_has_no_version(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    assert run("--version").status == 1


# serve and migrate


def test_serve_ends_with_the_status_of_the_service(run: Run, fakes: Fakes) -> None:
    fakes.answers["serve"] = 3
    assert run("serve") == Ended(3, "", "")
    assert fakes.calls == [("serve", Settings())]


def test_the_command_line_wins_over_environment_and_file(
    run: Run, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX + "SERVER__PORT", "2")
    monkeypatch.setenv(PREFIX + "LOG__ACCESS", "false")
    Path("my.toml").write_text('[server]\nport = 1\n[service]\nname = "seats"\n')
    run("serve", "--config", "my.toml", "--host", "::1", "--port", "0", "--database", "d/r.db")
    ((_, settings),) = fakes.calls
    assert (settings.server.host, settings.server.port) == ("::1", 0)
    assert settings.storage.database == Path("d/r.db")
    assert (settings.service.name, settings.log.access) == ("seats", False)


@pytest.mark.parametrize("command", ["serve", "migrate", "destroy"])
def test_a_refused_setting_ends_every_command(command: str, run: Run, fakes: Fakes) -> None:
    Path("config.toml").write_text("[server]\nprot = 1\n[log]\naccess = 1\n")
    assert run(command) == refused(
        "config.toml: unknown key 'server.prot'; did you mean server.port?\n"
        "reservation-service: config.toml: log.access must be true or false, not 1"
    )
    assert fakes.calls == []


@pytest.mark.parametrize("command", ["serve", "migrate"])
def test_a_missing_configuration_is_refused(command: str, run: Run, fakes: Fakes) -> None:
    refusal = refused("configuration file no.toml does not exist")
    assert run(command, "--config", "no.toml") == refusal


def test_a_port_out_of_bounds_names_its_key(run: Run, fakes: Fakes) -> None:
    rule = "server.port must be a whole number from 0 through 65535, not 70000"
    assert run("serve", "--port", "70000") == refused(f"command line: {rule}")


@pytest.mark.parametrize("command", ["serve", "migrate"])
def test_a_service_that_does_not_start_says_why(command: str, run: Run, fakes: Fakes) -> None:
    fakes.answers[command] = StartupError("The database is newer than this program.")
    assert run(command) == refused("The database is newer than this program.")


@pytest.mark.parametrize("command", ["serve", "migrate"])
def test_an_interruption_shows_no_stack_trace(command: str, run: Run, fakes: Fakes) -> None:
    fakes.answers[command] = KeyboardInterrupt()
    assert run(command) == Ended(130, "", "\nreservation-service: interrupted\n")


def test_migrate_lists_what_it_applied(run: Run, fakes: Fakes) -> None:
    fakes.answers["migrate"] = ["0001_reservation", "0002_more"]
    assert run("migrate") == Ended(0, "applied 0001_reservation\napplied 0002_more\n", "")


def test_migrate_says_when_there_was_nothing_to_do(run: Run, fakes: Fakes) -> None:
    assert run("migrate", "--database", "r.db") == Ended(0, "r.db is up to date\n", "")


# keys


def test_a_key_is_added_listed_and_revoked(run: Run) -> None:
    added = run("keys", "add", "shop", "--scope", "reserve")
    assert re.fullmatch(r"rsk_[\w-]{43}\n", added.out)
    assert added.err == "Keep it as a secret; it is not shown again.\n"
    assert run("keys", "add", "staff", "--scope", "operate").status == 0
    shop, staff = run("keys", "list").out.splitlines()
    assert re.fullmatch(r"shop +reserve  20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC", shop)
    assert re.fullmatch(r"staff +operate  20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC", staff)
    assert added.out.strip() not in shop
    assert run("keys", "revoke", "shop") == Ended(0, "revoked shop\n", "")
    assert run("keys", "list").out == f"{staff}\n"
    assert Path("reservations.db.keys").exists()
    assert not Path("reservations.db").exists()


def test_without_keys_the_list_is_empty(run: Run) -> None:
    assert run("keys", "list") == Ended(0, "", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["add", "shop", "--scope", "reserve"], "There is a key called shop; revoke it or"),
        (["add", "Shop", "--scope", "reserve"], "A key's name is 1 to 40 lowercase letters"),
        (["revoke", "other"], "There is no key of that name."),
        (["list", "--database", "no/r.db"], ""),
        (["add", "a", "--scope", "operate", "--database", "no/r.db"], "Cannot use the key file"),
    ],
)
def test_a_refused_key_is_told_in_one_sentence(
    arguments: list[str], sentence: str, run: Run
) -> None:
    run("keys", "add", "shop", "--scope", "reserve")
    ended = run("keys", *arguments)
    if not sentence:
        assert ended == Ended(0, "", "")
        return
    assert (ended.status, ended.out) == (1, "")
    assert re.fullmatch(rf"reservation-service: {re.escape(sentence)}.*\n", ended.err)


@pytest.mark.parametrize(
    "arguments",
    [["add", "shop"], ["add", "--scope", "reserve"], ["add", "shop", "--scope", "all"], ["revoke"]],
)
def test_a_key_needs_a_name_and_a_scope(arguments: list[str], run: Run) -> None:
    assert run("keys", *arguments).status == 2
    assert run("keys", "list").out == ""


def test_keys_are_beside_the_configured_database(run: Run) -> None:
    Path("data").mkdir()
    Path("config.toml").write_text('[storage]\ndatabase = "data/r.db"\n')
    run("keys", "add", "shop", "--scope", "reserve")
    assert [path.name for path in Path("data").iterdir()] == ["r.db.keys"]


# destroy


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_destroy_deletes_once_the_name_is_typed(
    run: Run, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, "reservation-expiry\n")
    fakes.answers["destroy"] = 7
    ended = run("destroy", "--database", "r.db")
    assert (ended.status, ended.out) == (0, "deleted 7 reservations from r.db\n")
    assert "deletes every reservation of reservation-expiry in r.db for good" in ended.err
    assert [name for name, _ in fakes.calls] == ["destroy"]


@pytest.mark.parametrize(
    "typed",
    ["", "\n", "y\n", "yes\n", "reservation\n", "Reservation-Expiry\n", "reservations.db\n"],
)
def test_destroy_deletes_nothing_for_another_answer(
    typed: str, run: Run, fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, typed)
    ended = run("destroy")
    assert (ended.status, fakes.calls) == (1, [])
    assert ended.err.endswith("nothing was deleted.\n")


def test_destroy_asks_for_the_configured_name(run: Run, fakes: Fakes) -> None:
    Path("config.toml").write_text('[service]\nname = "seats"\n')
    assert run("destroy", "--yes", "reservation-expiry").status == 1
    assert fakes.calls == []
    assert run("destroy", "--yes", "seats").status == 0


@pytest.mark.parametrize("name", ["", "y", "reservation-expir", "reservation-expiry "])
def test_the_name_in_advance_must_match_too(name: str, run: Run, fakes: Fakes) -> None:
    sentence = "That is not the name of the namespace; nothing was deleted."
    assert run("destroy", "--yes", name) == refused(sentence)
    assert fakes.calls == []


def test_a_destroy_that_is_refused_says_why(run: Run, fakes: Fakes) -> None:
    fakes.answers["destroy"] = StartupError("The service is running.")
    assert run("destroy", "--yes", "reservation-expiry") == refused("The service is running.")


# The real thing


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    yield server
    await server.kill()


async def command(*arguments: str) -> Ended:
    """The command line in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "reservation_service", *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate()
    return Ended(process.returncode, out.decode(), err.decode())


async def test_a_namespace_is_destroyed_for_good_and_only_while_stopped(server: Server) -> None:
    url = await server.start()
    await server.hold("seat-1", 60)
    destroy = ("destroy", "--database", str(server.database), "--yes", "reservation-expiry")

    running = await command(*destroy)
    assert running.status == 1
    assert re.fullmatch(r"reservation-service: .+\.\n", running.err)
    assert (await server.status("seat-1"))["status"] == "held"

    assert await server.stop() == 0
    deleted = f"deleted 1 reservations from {server.database}\n"
    assert await command(*destroy) == Ended(0, deleted, "")

    url = await server.start()
    async with aiohttp.ClientSession(url) as session:
        for path in ("/", "/reservations/seat-1", "/anything"):
            async with session.get(path) as answer:
                assert (answer.status, await answer.json()) == (410, {"status": "cleanup"})


async def test_migrate_makes_a_database_once(tmp_path: Path) -> None:
    database = tmp_path / "new.db"
    first = await command("migrate", "--database", str(database))
    assert (first.status, first.err) == (0, "")
    assert first.out.startswith("applied 0001_")
    assert database.exists()
    again = await command("migrate", "--database", str(database))
    assert again == Ended(0, f"{database} is up to date\n", "")


async def test_a_second_process_is_refused_in_one_sentence(server: Server) -> None:
    await server.start()
    second = await command("serve", "--port", "0", "--database", str(server.database))
    assert (second.status, second.out) == (1, "")
    assert re.fullmatch(r"reservation-service: .+\.\n", second.err)


async def test_a_database_that_is_not_there_is_not_destroyed(tmp_path: Path) -> None:
    ended = await command("destroy", "--database", "no.db", "--yes", "reservation-expiry")
    assert ended.status == 1
    assert ended.err.startswith("reservation-service: ")
    assert not await asyncio.to_thread((tmp_path / "no.db").exists)
