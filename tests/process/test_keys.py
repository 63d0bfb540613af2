"""Keys and a running process: added and revoked beside it, and what it refuses to start with."""

import os
import stat
import time
from pathlib import Path

import pytest

from reservation_service import config
from tests.process.commands import keys
from tests.process.conftest import MakeServer
from tests.process.server import ROOT, Answer, Server, command, eventually
from tests.process.test_refusals import refusal

EFFECTIVE_SECONDS_MAX = 1.0


def effective(since: float) -> bool:
    return time.monotonic() - since <= EFFECTIVE_SECONDS_MAX


def read(server: Server, token: str | None) -> Answer:
    return server.call("GET", "/reservations/seat-1", token=token)


def test_a_key_is_good_within_a_second_and_worthless_within_a_second(server: Server) -> None:
    keys(server.database, "add", "staff", "--scope", "operate")
    server.start()
    token = keys(server.database, "add", "shop", "--scope", "reserve")
    added = time.monotonic()
    eventually(lambda: read(server, token).status == 200)
    assert effective(added)

    keys(server.database, "revoke", "shop")
    revoked = time.monotonic()
    eventually(lambda: read(server, token).status == 401)
    assert effective(revoked)
    server.stop()


def test_a_key_that_was_revoked_while_nobody_ran_is_worthless(server: Server) -> None:
    token = keys(server.database, "add", "shop", "--scope", "reserve")
    server.start()
    assert read(server, token).status == 200
    server.kill()
    keys(server.database, "revoke", "shop")
    server.start()
    assert read(server, token).status == 401


def test_keys_never_touch_the_database(server: Server) -> None:
    server.start().hold("seat-1", 3600)
    server.read("seat-1")  # the first reader of a log says how far it reads
    before = {path.name: path.stat().st_mtime_ns for path in server.database.parent.iterdir()}
    token = keys(server.database, "add", "shop", "--scope", "reserve")
    keys(server.database, "list")
    eventually(lambda: read(server, None).status == 401)
    after = {path.name: path.stat().st_mtime_ns for path in server.database.parent.iterdir()}
    made = f"{server.database.name}.keys"
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed - {"stderr"} == {made}
    assert read(server, token).body["status"] == "held"


def test_a_damaged_key_file_leaves_the_old_keys_in_force_and_is_told(server: Server) -> None:
    token = keys(server.database, "add", "shop", "--scope", "reserve")
    file = server.database.with_name(server.database.name + ".keys")
    whole = file.read_bytes()
    server.start()
    file.write_bytes(whole[: len(whole) // 2])
    told = server.line("keys-refused")
    assert told["reason"] == f"Cannot use the key file {file}: it is torn or damaged."
    assert (read(server, token).status, read(server, None).status) == (200, 401)
    file.write_bytes(whole)
    server.line("keys-loaded", nth=2)
    server.stop()


@pytest.mark.parametrize("mode", ["keys", "none"])
def test_a_damaged_key_file_is_refused_at_the_start(tmp_path: Path, mode: str) -> None:
    database = tmp_path / "r.db"
    keys(database, "add", "shop", "--scope", "reserve")
    file = tmp_path / "r.db.keys"
    file.write_bytes(file.read_bytes()[:30])
    settings = tmp_path / "config.toml"
    settings.write_text(f'[auth]\nmode = "{mode}"\n')
    sentence = refusal("--database", str(database), "--config", str(settings))
    assert sentence == f"Cannot use the key file {file}: it is torn or damaged."


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_without_keys_only_this_machine_is_served(tmp_path: Path, host: str) -> None:
    database = tmp_path / "r.db"
    sentence = refusal("--database", str(database), "--host", host)
    assert sentence == (
        f"Without keys the service is for this machine alone, and not for {host}: add a key "
        "(reservation-service keys add NAME --scope operate), serve on 127.0.0.1, or set "
        'auth.mode = "none" to let everybody do everything.'
    )
    keys(database, "add", "shop", "--scope", "reserve")
    keys(database, "revoke", "shop")
    assert refusal("--database", str(database), "--host", host) == sentence


def test_a_proxy_is_a_door_to_everybody_and_needs_keys_too(tmp_path: Path) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text('[server]\ntrusted_proxies = ["127.0.0.1"]\n')
    sentence = refusal("--database", str(tmp_path / "r.db"), "--config", str(settings))
    assert sentence.startswith(
        "Without keys the service is for this machine alone, and not for those behind a proxy: "
    )


def test_the_production_example_starts_with_a_key_and_not_without_one(tmp_path: Path) -> None:
    example = ROOT / "examples" / "production" / "config.toml"
    settings = config.load(example, {}, {})
    assert settings.rate_limit.per_address
    assert settings.rate_limit.per_key
    assert not settings.reservations.replay_alarm
    database = tmp_path / "r.db"
    given = ["--config", str(example), "--database", str(database)]
    assert "add a key" in refusal(*given)
    keys(database, "add", "shop", "--scope", "reserve")
    server = Server(tmp_path, database)
    server.command = command("serve", *given)
    try:
        server.start()
        assert server.call("GET", "/whoami").body["scopes"] == []
    finally:
        server.end()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_without_keys_this_machine_is_served(make_server: MakeServer, host: str) -> None:
    server = make_server(server__host=host).start()
    assert server.line("service-started")["host"] == host
    server.stop()


def test_with_a_key_or_by_an_explicit_choice_everybody_is_served(make_server: MakeServer) -> None:
    chosen = make_server(server__host="0.0.0.0", auth__mode="none").start()
    assert read(chosen, None).status == 200
    keyed = make_server(server__host="0.0.0.0")
    token = keys(keyed.database, "add", "shop", "--scope", "reserve")
    keyed.start()
    assert (read(keyed, token).status, read(keyed, None).status) == (200, 401)


def test_what_the_service_writes_is_its_owners_alone(server: Server) -> None:
    before = os.umask(0)
    try:
        keys(server.database, "add", "shop", "--scope", "reserve")
        server.start()
    finally:
        os.umask(before)
    files = [path for path in server.database.parent.iterdir() if path.name != "stderr"]
    assert {path.name.removeprefix(server.database.name) for path in files} == {
        *("", "-wal", "-shm", ".lock", ".keys")
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
