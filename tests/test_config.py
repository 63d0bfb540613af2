"""What the settings promise: an order of sources, no guessing, refusals that name the key."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from reservation_service import config
from reservation_service.config import ConfigurationError, Settings, Values

PROJECT = Path(__file__).parents[1]
PORT = "RESERVATION_SERVICE__SERVER__PORT"


@pytest.fixture(autouse=True)
def _an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(
    text: str | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Values | None = None,
) -> Settings:
    if text is not None:
        Path("config.toml").write_text(text, "utf-8")
    return config.load(None, overrides or {}, environ or {})


def problems(
    text: str | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Values | None = None,
) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as refusal:
        load(text, environ, overrides)
    return refusal.value.problems


def test_the_defaults_are_these() -> None:
    assert load().model_dump(mode="json") == {
        "service": {"name": "reservation-expiry"},
        "server": {
            "host": "127.0.0.1",
            "port": 8787,
            "body_bytes_max": 16384,
            "requests_max": 1000,
            "connections_max": 2000,
            "drain_ms": 0,
            "hosts": [],
            "trusted_proxies": [],
        },
        "auth": {"mode": "keys", "public": False},
        "rate_limit": {"per_key": "", "per_address": ""},
        "cors": {"origins": []},
        "storage": {"database": "reservations.db"},
        "reservations": {
            "ttl_seconds_min": 5,
            "ttl_seconds_max": 3600,
            "max_hold_seconds": 7200,
            "require_holder": False,
            "max_holds_per_holder": 20,
            "replay_alarm": True,
            "retention_days": 30,
        },
        "events": {"retention_days": 30},
        "feed": {
            "readers_max": 1000,
            "coalesce_ms": 100,
            "heartbeat_ms": 15000,
            "buffer_bytes": 262144,
        },
        "alarms": {
            "lease_ms": 10000,
            "attempt_timeout_ms": 5000,
            "retry_first_ms": 2000,
            "retry_cap_ms": 60000,
            "stuck_after": 6,
            "claim_max": 1024,
            "in_flight_max": 4000,
            "overdue_max_seconds": 5,
        },
        "writer": {"queue_max": 10000, "batch_max": 512, "own_process": True},
        "log": {"access": True, "format": "json"},
    }


def test_settings_by_hand_read_neither_file_nor_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PORT, "1")
    Path("config.toml").write_text("[server]\nport = 2\n")
    assert Settings().server.port == 8787
    assert load(environ={}).server.port == 2


def test_settings_cannot_be_changed() -> None:
    settings = load()
    for frozen, name in ((settings, "server"), (settings.server, "port")):
        with pytest.raises(ValidationError):
            setattr(frozen, name, getattr(frozen, name))


def test_later_sources_win_key_by_key() -> None:
    settings = load(
        '[server]\nhost = "::1"\nport = 1\nbody_bytes_max = 1000\n',
        {PORT: "2", "RESERVATION_SERVICE__SERVER__BODY_BYTES_MAX": "2000", "HOME": "/root"},
        {"server": {"port": 3}},
    )
    server = settings.server
    assert (server.host, server.port, server.body_bytes_max) == ("::1", 3, 2000)


def test_a_variable_may_hold_every_kind_of_value() -> None:
    values = {"SERVICE__NAME": "seats", "STORAGE__DATABASE": "/data/r.db", "LOG__ACCESS": "false"}
    settings = load(environ={config.PREFIX + name: value for name, value in values.items()})
    assert settings.service.name == "seats"
    assert settings.storage.database == Path("/data/r.db")
    assert settings.log.access is False


@pytest.mark.parametrize("key", config.KEYS)
def test_every_key_has_a_variable(key: str) -> None:
    section, _, name = key.partition(".")
    default = getattr(getattr(Settings(), section), name)
    text = ",".join(default) if isinstance(default, tuple) else str(default)
    assert load(environ={config.variable(key): text}) == Settings()


@pytest.mark.parametrize("rate", ["", "1/second", "600/minute", "9999999/hour"])
def test_a_rate_is_a_number_of_calls_in_a_time(rate: str) -> None:
    assert load(f'[rate_limit]\nper_key = "{rate}"').rate_limit.per_key == rate


@pytest.mark.parametrize(
    "rate", ["0/second", "1", "1/day", "1 per second", "1/second\\n", "-1/hour"]
)
def test_anything_else_is_no_rate(rate: str) -> None:
    (problem,) = problems(f'[rate_limit]\nper_address = "{rate}"')
    assert problem == (
        'config.toml: rate_limit.per_address must be "" or a rate such as "20/second", "600/minute"'
    )


@pytest.mark.parametrize("proxies", ['["10.0.0.7", "10.1.0.0/16", "::1"]', "[]"])
def test_proxies_are_addresses_or_networks(proxies: str) -> None:
    server = load(f"[server]\ntrusted_proxies = {proxies}").server
    assert list(server.trusted_proxies) == json.loads(proxies)


@pytest.mark.parametrize("proxies", ['["proxy"]', '["10.0.0.1/8"]', '[""]', '["*"]'])
def test_anything_else_is_no_proxy(proxies: str) -> None:
    (problem,) = problems(f"[server]\ntrusted_proxies = {proxies}")
    assert "server.trusted_proxies must be a list of addresses" in problem


@pytest.mark.parametrize("hosts", ['["Booking.example"]', '["booking.example:8787"]', '["a b"]'])
def test_a_host_is_a_name_in_small_letters_without_a_port(hosts: str) -> None:
    (problem,) = problems(f"[server]\nhosts = {hosts}")
    assert "server.hosts must be a list of host names" in problem


@pytest.mark.parametrize("mode", ["off", "", "None", "key"])
def test_there_are_two_modes_of_asking_for_keys(mode: str) -> None:
    assert problems(f'[auth]\nmode = "{mode}"') == (
        'config.toml: auth.mode must be "keys" or "none"',
    )


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("", ()),
        ("https://shop.example", ("https://shop.example",)),
        (
            " https://shop.example , http://localhost:8000,",
            ("https://shop.example", "http://localhost:8000"),
        ),
    ],
)
def test_a_variable_may_hold_a_list(text: str, origins: tuple[str, ...]) -> None:
    settings = load(environ={"RESERVATION_SERVICE__CORS__ORIGINS": text})
    assert settings.cors.origins == origins


# The file


def test_an_explicit_file_is_read_instead_of_the_default_one() -> None:
    Path("config.toml").write_text("[server]\nport = 1\n")
    Path("other.toml").write_text("[server]\nport = 2\n")
    assert config.load(Path("other.toml"), {}, {}).server.port == 2


def test_an_explicit_file_must_exist() -> None:
    with pytest.raises(ConfigurationError, match=r"^configuration file no\.toml does not exist$"):
        config.load(Path("no.toml"), {}, {})


def test_a_directory_is_not_a_file() -> None:
    Path("config.toml").mkdir()
    assert problems() == ("config.toml cannot be read: Is a directory",)


def test_a_mistake_in_the_toml_names_file_and_line() -> None:
    (problem,) = problems("[server]\nport = \n")
    assert problem.startswith("config.toml is not valid TOML: ")
    assert "line 2" in problem


@pytest.mark.parametrize("bytes_", [b"\xff", b"[server]\nport = " + b"9" * 5000])
def test_a_file_that_is_no_toml_is_refused_in_one_sentence(bytes_: bytes) -> None:
    Path("config.toml").write_bytes(bytes_)
    (problem,) = problems()
    assert problem.startswith("config.toml is not valid TOML: ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[server]\nprot = 1", "unknown key 'server.prot'; did you mean server.port?"),
        ("[sever]\nport = 1", "unknown key 'sever'; did you mean server?"),
        ("port = 1", "unknown key 'port'; did you mean server.port?"),
        ("server.database = 1", "unknown key 'server.database'; did you mean storage.database?"),
        ("[zzz]", "unknown key 'zzz'"),
        ('["a\\nb"]', "unknown key 'a\\nb'"),
        ("server = 1", "'server' is a section and needs keys below [server]"),
        ("[[server]]", "'server' is a section and needs keys below [server]"),
    ],
)  # fmt: skip
def test_an_unknown_key_is_named_with_what_was_meant(text: str, problem: str) -> None:
    assert problems(text) == (f"config.toml: {problem}",)


# The environment


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("RESERVATION_SERVICE__SERVER__PROT", PORT),
        ("RESERVATION_SERVICE__SEVER__PORT", PORT),
        ("RESERVATION_SERVICE__WRITER__PORT", PORT),
        ("RESERVATION_SERVICE__SERVER_PORT", PORT),
        ("RESERVATION_SERVICE_SERVER__PORT", PORT),
        ("RESERVATION_SERVICE__PORT", PORT),
        ("RESERVATION_SERVICE__SERVER__PORT__X", PORT),
        ("reservation_service__server__port", PORT),
    ],
)
def test_a_mistyped_variable_is_named_with_what_was_meant(name: str, meant: str) -> None:
    assert problems(environ={name: "1"}) == (
        f"unknown environment variable {name}; did you mean {meant}?",
    )


def test_a_variable_like_nothing_we_know_is_still_refused() -> None:
    (problem,) = problems(environ={"RESERVATION_SERVICE__QQQ__ZZZ": "1"})
    assert problem == "unknown environment variable RESERVATION_SERVICE__QQQ__ZZZ"


def test_a_variable_for_a_whole_section_is_refused() -> None:
    (problem,) = problems(environ={"RESERVATION_SERVICE__SERVER": '{"port": 1}'})
    assert problem == (
        "environment variable RESERVATION_SERVICE__SERVER names a section without a key,"
        " as RESERVATION_SERVICE__SERVER__HOST has one"
    )


def test_names_that_an_orchestrator_makes_are_not_ours() -> None:
    assert load(environ={
        "RESERVATION_SERVICE_SERVICE_HOST": "10.0.0.1",
        "RESERVATION_SERVICE_PORT": "tcp://10.0.0.1:8787",
        "RESERVATION_SERVICE_PORT_8787_TCP_ADDR": "10.0.0.1",
    }) == Settings()  # fmt: skip


def test_a_refused_variable_is_named() -> None:
    rule = "server.port must be a whole number from 0 through 65535, not 70000"
    assert problems(environ={PORT: "70000"}) == (f"environment variable {PORT}: {rule}",)


@pytest.mark.parametrize("value", ["", "s3cret", "9" * 5000, "[" * 5000, "{", "null", "true"])
def test_a_refused_text_is_never_repeated(value: str) -> None:
    assert problems(environ={PORT: value}) == (
        f"environment variable {PORT}: server.port must be a whole number from 0 through 65535",
    )


# The values


@pytest.mark.parametrize("key", config.KEYS)
def test_a_value_of_another_kind_is_refused(key: str) -> None:
    section, _, name = key.partition(".")
    (problem,) = problems(f"[{section}]\n{name} = [1]")
    assert problem.startswith(f"config.toml: {key} must be ")


@pytest.mark.parametrize("value", ["true", '"8787"', "8787.0", "-1", "65536", "1e3"])
def test_a_number_is_a_whole_number_within_its_bounds(value: str) -> None:
    (problem,) = problems(f"[server]\nport = {value}")
    assert "server.port must be a whole number from 0 through 65535" in problem


@pytest.mark.parametrize("value", ["1", '"true"'])
def test_a_switch_is_true_or_false(value: str) -> None:
    (problem,) = problems(f"[log]\naccess = {value}")
    assert problem.startswith("config.toml: log.access must be true or false")


def test_every_number_has_bounds() -> None:
    for key in config.KEYS:
        section, _, name = key.partition(".")
        default = getattr(getattr(Settings(), section), name)
        if type(default) is int:
            for value in (-1, 10**12):
                (problem,) = problems(overrides={section: {name: value}})
                assert problem.startswith(f"command line: {key} must be a whole number from ")
                assert problem.endswith(f", not {value}")


@pytest.mark.parametrize("name", ["", "ab", "Seats", "-seats", "seats-", "a b c", "a" * 41, "é-é"])
def test_the_name_has_the_form_of_an_id(name: str) -> None:
    (problem,) = problems(overrides={"service": {"name": name}})
    assert problem.startswith("command line: service.name must be 3 to 40 lowercase letters")


@pytest.mark.parametrize("path", ["", ".", "/", "..", ":memory:", "file:r.db?mode=memory", "a\0b"])
def test_the_database_is_a_file(path: str) -> None:
    (problem,) = problems(overrides={"storage": {"database": path}})
    assert problem == "command line: storage.database must be the path of a file"


@pytest.mark.parametrize("host", ["", " ", "a b", "http://x", "a\nb", "a..b", "a" * 64])
def test_the_host_is_a_name_or_an_address(host: str) -> None:
    (problem,) = problems(overrides={"server": {"host": host}})
    assert problem == "command line: server.host must be a host name or an IP address"


@pytest.mark.parametrize("host", ["::", "0.0.0.0", "fe80::1%eth0", "booking.example", "db_1"])
def test_the_host_may_be_a_name_or_an_address_of_either_family(host: str) -> None:
    assert load(overrides={"server": {"host": host}}).server.host == host


@pytest.mark.parametrize(
    "origin", ["", "*", "null", "shop.example", "https://shop.example/", "https://Shop.example"]
)
def test_an_origin_is_a_scheme_a_host_and_perhaps_a_port(origin: str) -> None:
    (problem,) = problems(overrides={"cors": {"origins": ["http://localhost:8000", origin]}})
    assert problem == (
        'command line: cors.origins must be a list of origins such as "https://shop.example"'
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[reservations]\nmax_hold_seconds = 3599", ["ttl_seconds_max", "max_hold_seconds"]),
        ("[reservations]\nttl_seconds_min = 4000", ["ttl_seconds_min", "ttl_seconds_max"]),
        ("[alarms]\nattempt_timeout_ms = 10000", ["attempt_timeout_ms", "lease_ms"]),
        ("[alarms]\nretry_first_ms = 60001", ["retry_first_ms", "retry_cap_ms"]),
    ],
)
def test_values_that_contradict_each_other_are_refused(text: str, named: list[str]) -> None:
    (problem,) = problems(text)
    assert all(name in problem for name in named)


def test_equal_limits_are_allowed() -> None:
    reservations = {"ttl_seconds_min": 60, "ttl_seconds_max": 60, "max_hold_seconds": 60}
    alarms = {"retry_first_ms": 5, "retry_cap_ms": 5}
    load(overrides={"reservations": reservations, "alarms": alarms})


def test_all_problems_are_told_at_once_one_to_a_line() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        load(
            '[server]\nprot = 1\n[alarms]\nlease_ms = "secret"\n',
            {"RESERVATION_SERVICE__QQQ": "1"},
            {"server": {"port": -1}},
        )
    assert str(refusal.value).splitlines() == [
        "unknown environment variable RESERVATION_SERVICE__QQQ",
        "command line: server.port must be a whole number from 0 through 65535, not -1",
        "config.toml: unknown key 'server.prot'; did you mean server.port?",
        "config.toml: alarms.lease_ms must be a whole number from 100 through 3600000",
    ]


# The file that comes with the project


def shipped() -> str:
    return (PROJECT / "config.toml").read_text("utf-8")


def test_the_shipped_file_shows_exactly_the_defaults() -> None:
    assert tomllib.loads(shipped()) == Settings().model_dump(mode="json")
    assert config.load(PROJECT / "config.toml", {}, {}) == Settings()


def test_the_shipped_file_documents_every_key() -> None:
    for key in config.KEYS:
        section, _, name = key.partition(".")
        paragraphs = shipped().partition(f"\n[{section}]\n")[2].split("\n[")[0].split("\n\n")
        (paragraph,) = (p for p in paragraphs if re.search(rf"^{name} = ", p, re.MULTILINE))
        prose = paragraph[: paragraph.index("\n" + name)]
        assert len(re.findall(r"^# \w.*", prose, re.MULTILINE)) >= 1, key
        assert all(unit in prose for unit in _units(name)), key


def _units(name: str) -> list[str]:
    """The words that the prose above a key must have, from the unit in the key's name."""
    words = {"_ms": "milliseconds", "seconds": "seconds", "bytes": "bytes", "days": "days"}
    words |= {"_max": "1"}
    return [word for part, word in words.items() if part in name]
