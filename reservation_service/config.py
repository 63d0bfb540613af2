"""The settings of the service and where they come from: file, environment, command line.

Later sources win: built-in defaults, `config.toml`, `RESERVATION_SERVICE__SECTION__KEY`, command
line. Nothing is guessed: unknown keys, mistyped variables and values out of bounds are refused
by name, all of them at once. Text is never repeated in a refusal, since it may be a secret.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

DEFAULT_FILE = Path("config.toml")
PREFIX = "RESERVATION_SERVICE__"
_YEAR_SECONDS = 31_536_000
_DAY_MS = 86_400_000
_ID = r"^[a-z0-9](?:[a-z0-9-]{1,38}[a-z0-9])$"
_LABEL = "[A-Za-z0-9_-]{1,63}"
_HOST = rf"^(?:{_LABEL}(?:\.{_LABEL})*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[A-Za-z0-9]+)?)$"

Values = Mapping[str, Mapping[str, object]]
"""Section → key → value."""


class ConfigurationError(Exception):
    """The settings are refused; `problems` are sentences, each of which names its key."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def load(config: Path | None, overrides: Values, environ: Mapping[str, str]) -> "Settings":
    """Read the settings from the file, then `environ`, then `overrides`; later ones win.

    Without `config` it is `./config.toml` where that exists. Raises ConfigurationError for
    anything that is not understood. Nothing else is read: `environ` is the whole environment.
    """
    sources = _Sources(config, overrides, environ)
    problems = list(sources.misnamed())
    try:
        settings = Settings(_build_sources=(sources.by_precedence(), {}))
    except ValidationError as refusal:
        problems += [sources.sentence(error) for error in refusal.errors(include_url=False)]
    if problems:
        raise ConfigurationError(problems)
    return settings


def _number(default: int, at_least: int, at_most: int) -> Any:
    rule = f"a whole number from {at_least} through {at_most}"
    return Field(default=default, ge=at_least, le=at_most, description=rule)


def _switch(default: bool) -> Any:
    return Field(default=default, description="true or false")


def _a_file(path: Path) -> Path:
    text = str(path)
    if path.name in ("", "..") or text.startswith((":memory:", "file:")) or "\0" in text:
        raise ValueError("not the path of a file")
    return path


class Section(BaseModel):
    """A table of the file. Values have exactly the type they are declared with."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ServiceSettings(Section):
    """What this deployment is called; `destroy` asks for this name."""

    name: str = Field(
        default="reservation-expiry",
        pattern=_ID,
        description="3 to 40 lowercase letters, digits or hyphens, no hyphen at either end",
    )


def _networks(networks: tuple[str, ...]) -> tuple[str, ...]:
    for network in networks:
        ip_network(network)
    return networks


def _names(names: tuple[str, ...]) -> tuple[str, ...]:
    if not all(re.fullmatch(_HOST, name) and name == name.lower() for name in names):
        raise ValueError("not a host name")
    return names


class ServerSettings(Section):
    """Where the service listens; port 0 is any free port."""

    host: str = Field(
        default="127.0.0.1",
        pattern=_HOST,
        description="a host name or an IP address",
    )
    port: int = _number(8787, 0, 65_535)
    body_bytes_max: int = _number(16_384, 256, 1_048_576)
    requests_max: int = _number(1_000, 1, 100_000)
    connections_max: int = _number(2_000, 1, 100_000)
    drain_ms: int = _number(0, 0, 60_000)
    hosts: Annotated[tuple[str, ...], AfterValidator(_names)] = Field(
        default=(), strict=False, description='a list of host names such as "booking.example"'
    )
    trusted_proxies: Annotated[tuple[str, ...], AfterValidator(_networks)] = Field(
        default=(),
        strict=False,
        description='a list of addresses such as "10.0.0.7", "10.1.0.0/16"',
    )


class AuthSettings(Section):
    """Who has to present a key."""

    mode: Literal["keys", "none"] = Field(default="keys", description='"keys" or "none"')
    public: bool = _switch(False)


def _origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        if not re.fullmatch(r"https?://[a-z0-9.:\[\]-]+", origin):
            raise ValueError("not an origin")
    return origins


class CorsSettings(Section):
    """Which other sites' pages may call."""

    origins: Annotated[tuple[str, ...], AfterValidator(_origins)] = Field(
        default=(), strict=False, description='a list of origins such as "https://shop.example"'
    )


def _a_rate(text: str) -> str:
    if text and not re.fullmatch(r"[1-9][0-9]{0,6}/(second|minute|hour)", text):
        raise ValueError("not a rate")
    return text


def _rate() -> Any:
    return Field(default="", description='"" or a rate such as "20/second", "600/minute"')


class RateLimitSettings(Section):
    """How often one caller may call."""

    per_key: Annotated[str, AfterValidator(_a_rate)] = _rate()
    per_address: Annotated[str, AfterValidator(_a_rate)] = _rate()


class StorageSettings(Section):
    """The database file; a relative path starts at the working directory."""

    database: Annotated[Path, AfterValidator(_a_file)] = Field(
        default=Path("reservations.db"), strict=False, description="the path of a file"
    )


class ReservationsSettings(Section):
    """What a hold may ask for."""

    ttl_seconds_min: int = _number(5, 1, _YEAR_SECONDS)
    ttl_seconds_max: int = _number(3_600, 1, _YEAR_SECONDS)
    max_hold_seconds: int = _number(7_200, 1, _YEAR_SECONDS)
    require_holder: bool = _switch(False)
    max_holds_per_holder: int = _number(20, 0, 100_000)
    replay_alarm: bool = _switch(True)
    retention_days: int = _number(30, 1, 3_650)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.ttl_seconds_min > self.ttl_seconds_max:
            raise ValueError(
                "reservations.ttl_seconds_min must not be greater than reservations.ttl_seconds_max"
            )
        if self.ttl_seconds_max > self.max_hold_seconds:
            raise ValueError(
                "reservations.ttl_seconds_max must not be greater than "
                "reservations.max_hold_seconds"
            )
        return self


class EventsSettings(Section):
    """How long the log is kept."""

    retention_days: int = _number(30, 1, 3_650)


class FeedSettings(Section):
    """Who may follow the log as a stream, and how it is told."""

    readers_max: int = _number(1_000, 0, 100_000)
    coalesce_ms: int = _number(100, 1, 1_000)
    heartbeat_ms: int = _number(15_000, 100, 600_000)
    buffer_bytes: int = _number(262_144, 4_096, 16_777_216)


class AlarmsSettings(Section):
    """How alarms are dispatched and retried."""

    lease_ms: int = _number(10_000, 100, 3_600_000)
    attempt_timeout_ms: int = _number(5_000, 10, 3_600_000)
    retry_first_ms: int = _number(2_000, 1, _DAY_MS)
    retry_cap_ms: int = _number(60_000, 1, _DAY_MS)
    stuck_after: int = _number(6, 1, 1_000)
    claim_max: int = _number(1_024, 1, 100_000)
    in_flight_max: int = _number(4_000, 1, 100_000)
    overdue_max_seconds: int = _number(5, 1, 86_400)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.attempt_timeout_ms >= self.lease_ms:
            raise ValueError("alarms.attempt_timeout_ms must be less than alarms.lease_ms")
        if self.retry_first_ms > self.retry_cap_ms:
            raise ValueError("alarms.retry_first_ms must not be greater than alarms.retry_cap_ms")
        return self


class WriterSettings(Section):
    """How many changes wait for the disk, how many share one transaction, and who writes them."""

    queue_max: int = _number(10_000, 1, 1_000_000)
    batch_max: int = _number(512, 2, 100_000)
    own_process: bool = _switch(True)


class LogSettings(Section):
    """What is logged beside the service's own events, and how it looks."""

    access: bool = _switch(True)
    format: Literal["json", "console"] = Field(default="json", description='"json" or "console"')


class Settings(BaseSettings):
    """All settings, checked and frozen. Constructed by hand it reads no file and no environment."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    service: ServiceSettings = ServiceSettings()
    server: ServerSettings = ServerSettings()
    auth: AuthSettings = AuthSettings()
    rate_limit: RateLimitSettings = RateLimitSettings()
    cors: CorsSettings = CorsSettings()
    storage: StorageSettings = StorageSettings()
    reservations: ReservationsSettings = ReservationsSettings()
    events: EventsSettings = EventsSettings()
    feed: FeedSettings = FeedSettings()
    alarms: AlarmsSettings = AlarmsSettings()
    writer: WriterSettings = WriterSettings()
    log: LogSettings = LogSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


KEYS = tuple(
    f"{section}.{key}"
    for section, field in Settings.model_fields.items()
    for key in type(field.default).model_fields
)
"""Every key there is, as `section.key`, in the order of the sections."""


def variable(key: str) -> str:
    """The environment variable of `section.key`."""
    return PREFIX + key.upper().replace(".", "__")


class _Sources:
    """What each source gave, and for a refused value the sentence that says where it came from."""

    def __init__(self, config: Path | None, overrides: Values, environ: Mapping[str, str]) -> None:
        self._path = config or DEFAULT_FILE
        self._file = _read(self._path, required=config is not None)
        self._overrides = overrides
        self._environ = environ
        self._variables = {variable(key) for key in KEYS} & environ.keys()

    def by_precedence(self) -> tuple[PydanticBaseSettingsSource, ...]:
        given = (self._overrides, self._from_environment(), self._file)
        return tuple(InitSettingsSource(Settings, dict(values)) for values in given)

    def misnamed(self) -> Iterator[str]:
        """Variables that look like ours and are not. A single underscore alone is somebody else's:
        an orchestrator makes such names from the names of its services."""
        for name in sorted(self._environ.keys() - self._variables):
            if name.upper().startswith(PREFIX[:-1]) and "__" in name:
                yield _misnamed(name)

    def sentence(self, error: ErrorDetails) -> str:
        key = ".".join(map(str, error["loc"][:2]))  # below a key there are a list's places
        if error["type"] == "value_error" and key not in KEYS:
            return str(error["ctx"]["error"])
        return f"{self._origin(key)}: {_complaint(key, error)}"

    def _from_environment(self) -> Values:
        values: dict[str, dict[str, object]] = {}
        for key in KEYS:
            if variable(key) in self._variables:
                section, _, name = key.partition(".")
                text = self._environ[variable(key)]
                values.setdefault(section, {})[name] = _decoded(text, _field(key).annotation)
        return values

    def _origin(self, key: str) -> str:
        section, _, name = key.partition(".")
        if name in self._overrides.get(section, {}):
            return "command line"
        if variable(key) in self._variables:
            return f"environment variable {variable(key)}"
        return str(self._path)


def _read(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError as error:
        if required:
            raise ConfigurationError([f"configuration file {path} does not exist"]) from error
        return {}
    except OSError as error:
        raise ConfigurationError([f"{path} cannot be read: {error.strerror}"]) from error
    except ValueError as error:
        raise ConfigurationError([f"{path} is not valid TOML: {error}"]) from error


def _complaint(key: str, error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return f"unknown key {key!r}{_did_you_mean(key)}"
    if key not in KEYS:
        return f"{key!r} is a section and needs keys below [{key}]"
    return f"{key} must be {_field(key).description}{_but_was(error['input'])}"


def _misnamed(name: str) -> str:
    key = name.upper().removeprefix(PREFIX[:-1]).strip("_").replace("__", ".").lower()
    if key in Settings.model_fields:
        example = next(variable(known) for known in KEYS if known.startswith(f"{key}."))
        return f"environment variable {name} names a section without a key, as {example} has one"
    meant = _did_you_mean(key, render=variable)
    return f"unknown environment variable {name}{meant}"


def _did_you_mean(key: str, render: Callable[[str], str] = str) -> str:
    name = key.rpartition(".")[2]
    namesakes = [known for known in KEYS if known.partition(".")[2] == name]
    similar = difflib.get_close_matches(key, [*KEYS, *Settings.model_fields], n=1)
    meant = next(iter(namesakes + similar), None)
    return f"; did you mean {render(meant)}?" if meant else ""


def _decoded(text: str, kind: object) -> object:
    """The text of a variable as the file would spell it; left as it is where it does not fit."""
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind is int and re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    return text


def _field(key: str) -> FieldInfo:
    section, _, name = key.partition(".")
    defaults: Section = Settings.model_fields[section].default
    return type(defaults).model_fields[name]


def _but_was(given: object) -> str:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return f", not {given}" if is_number else ""
