"""The image, as far as it can be tried without a container engine.

The Dockerfile's own build steps run for real, in a scratch folder in place of the image's root, and
what they made is started by another user with the image's own entry point, environment and health
check. What only an engine can show (the final stage's user and volume) is read off the file.
"""

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from socket import socket
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import pytest
import yaml
from packaging.requirements import Requirement

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ROOT = Path(__file__).parent.parent.parent
PREFIX = "/opt/reservation-service"
MIGRATIONS = sorted(path.name for path in (ROOT / "migrations" / "sqlite").glob("*.sql"))


class Instruction(NamedTuple):
    word: str
    rest: str


def stages() -> list[list[Instruction]]:
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    found: list[list[Instruction]] = []
    for line in filter(str.strip, re.sub(r"\\\n\s*", "", text).splitlines()):
        instruction = Instruction(*line.split(maxsplit=1))
        if instruction.word == "FROM":
            found.append([])
        found[-1].append(instruction)
    return found


def rests(stage: list[Instruction], word: str) -> list[str]:
    return [instruction.rest for instruction in stage if instruction.word == word]


def environment(stage: list[Instruction]) -> dict[str, str]:
    return dict(pair.split("=", 1) for rest in rests(stage, "ENV") for pair in rest.split())


def copied_from_context() -> list[str]:
    copies = [rest.split() for stage in stages() for rest in rests(stage, "COPY")]
    return [source for words in copies if "--from=" not in words[0] for source in words[:-1]]


def is_ignored(path: str, patterns: list[str]) -> bool:
    """Whether .dockerignore keeps `path` out of the build: its last match decides."""
    ignored = False
    for pattern in patterns:
        if matches(path.rstrip("/"), pattern.removeprefix("!")):
            ignored = not pattern.startswith("!")
    return ignored


def matches(path: str, pattern: str) -> bool:
    parts = path.split("/")
    if pattern.startswith("**/"):
        return any(fnmatch(part, pattern.removeprefix("**/")) for part in parts)
    depth = pattern.count("/") + 1
    return fnmatch("/".join(parts[:depth]), pattern)


def dockerignore() -> list[str]:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@dataclass(frozen=True)
class Image:
    """What stands for the root of the image, and the user in place of the image's own."""

    root: Path
    user: int
    group: int

    @property
    def prefix(self) -> Path:
        return self.root / PREFIX.removeprefix("/")

    @property
    def data(self) -> Path:
        return self.root / "data"

    def place(self, text: str) -> str:
        return text.replace(PREFIX, str(self.prefix)).replace("/data", str(self.data))

    def environment(self, **extra: str) -> dict[str, str]:
        told = {name: self.place(value) for name, value in environment(stages()[-1]).items()}
        return told | {"PATH": f"{self.prefix}/bin"} | extra

    def start(self, command: list[str], **extra: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [shutil.which(command[0], path=f"{self.prefix}/bin") or command[0], *command[1:]],
            env=self.environment(**extra),
            cwd=self.data,
            user=self.user,
            group=self.group,
            extra_groups=[],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: list[str], **extra: str) -> tuple[int, str]:
        process = self.start(command, **extra)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    nobody = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory() as folder:
        made = Image(Path(folder), nobody.pw_uid, nobody.pw_gid)
        made.root.chmod(0o755)
        made.data.mkdir()
        os.chown(made.data, made.user, made.group)
        build(made)
        yield made


def build(image: Image) -> None:
    """Run the first stage's instructions, with a bare Python in place of its base image."""
    base, workdir = image.root / "base", image.root / "build"
    subprocess.run([python_for_everybody(image), "-m", "venv", str(base)], check=True)
    stage = stages()[0]
    variables = os.environ | environment(stage) | {"PATH": f"{base}/bin:{os.environ['PATH']}"}
    workdir.mkdir()
    for word, rest in stage:
        if word == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy(ROOT / source, workdir / target)
        elif word == "RUN":
            command = image.place(rest)
            subprocess.run(command, shell=True, check=True, cwd=workdir, env=variables)


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignore)
    else:
        shutil.copy(source, target)


def python_for_everybody(image: Image) -> str:
    """A Python that another user can start: the one in use may lie in somebody's home."""
    probe = "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))"
    for candidate in (str(Path(sys.executable).resolve()), "/usr/bin/python3"):
        try:
            process = subprocess.run(
                [candidate, "-c", probe], user=image.user, group=image.group, cwd="/", check=False
            )
        except PermissionError:
            continue
        if process.returncode == 0:
            return candidate
    pytest.fail("No Python >= 3.11 with venv that another user can start; is python3-venv there?")


@pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="hadolint has no wheel here"
)
def test_hadolint_has_nothing_to_say() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    command = [str(hadolint), "--no-color", str(ROOT / "Dockerfile")]
    linted = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stdout) == (0, "")


def test_the_image_is_built_in_one_stage_and_run_in_another() -> None:
    assert len(stages()) == 2
    bases = [rests(stage, "FROM")[0].split()[0] for stage in stages()]
    assert bases[0] == bases[1], "the environment only works with the Python it was made with"
    assert rests(stages()[-1], "COPY") == [f"--from=build {PREFIX} {PREFIX}"]


def test_the_image_runs_as_a_fixed_user_who_owns_the_volume() -> None:
    final = stages()[-1]
    (user,) = rests(final, "USER")
    uid, gid = user.split(":")
    assert int(uid) >= 10000
    assert (
        f"install --directory --owner {uid} --group {gid} --mode 0750 /data"
        in rests(final, "RUN")[0]
    )
    assert rests(final, "VOLUME") == ['["/data"]']
    assert environment(final)["RESERVATION_SERVICE__STORAGE__DATABASE"] == "/data/reservations.db"


def test_signals_reach_the_service_and_not_a_shell() -> None:
    final = stages()[-1]
    assert rests(final, "STOPSIGNAL") == ["SIGTERM"]
    assert json.loads(rests(final, "ENTRYPOINT")[0]) == ["reservation-service"]
    assert json.loads(rests(final, "CMD")[0]) == ["serve"]
    assert health_check()[0] == "python"


def health_check() -> list[str]:
    (rest,) = rests(stages()[-1], "HEALTHCHECK")
    command: list[str] = json.loads(rest.partition("CMD ")[2])
    return command


def test_every_copied_file_is_in_the_build_context() -> None:
    assert copied_from_context()
    for source in copied_from_context():
        assert (ROOT / source).exists(), source
        assert not is_ignored(source, dockerignore()), source


def test_the_build_context_keeps_everything_else_out() -> None:
    for path in (".venv/bin/python", ".git/HEAD", "reservations.db", "tests/test_layers.py"):
        assert is_ignored(path, dockerignore()), path
    assert is_ignored("reservation_service/__pycache__/cli.pyc", dockerignore())


def test_compose_publishes_on_this_machine_alone() -> None:
    assert compose_service()["ports"] == ["127.0.0.1:8787:8787"]


def test_the_image_asks_for_keys_and_replays_nothing_unless_it_is_told_to() -> None:
    told = environment(stages()[-1])
    assert told["RESERVATION_SERVICE__SERVER__HOST"] == "0.0.0.0"
    assert told["RESERVATION_SERVICE__RESERVATIONS__REPLAY_ALARM"] == "false"
    assert "RESERVATION_SERVICE__AUTH__MODE" not in told


def test_compose_is_for_trying_it_out_and_says_so() -> None:
    assert compose_service()["environment"] == {
        "RESERVATION_SERVICE__AUTH__MODE": "none",
        "RESERVATION_SERVICE__RESERVATIONS__REPLAY_ALARM": "true",
    }


def test_compose_gives_the_container_nothing_it_does_not_need() -> None:
    service = compose_service()
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "network_mode", "user"} & service.keys()


def test_compose_keeps_the_data_and_restarts_the_service() -> None:
    (volume,) = compose_service()["volumes"]
    name, target = volume.split(":")
    assert target == "/data"
    assert name in compose()["volumes"]
    assert compose_service()["restart"] == "unless-stopped"
    assert compose_service()["stop_grace_period"] == "10s"


def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return read


def compose_service() -> dict[str, Any]:
    service: dict[str, Any] = compose()["services"]["reservation-service"]
    return service


def test_the_locks_satisfy_the_project_and_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    developer = locked("requirements-dev.lock")
    for name in ("requirements.lock", "requirements-build.lock"):
        assert locked(name).items() <= developer.items(), name
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(developer[requirement.name]), requirement


def locked(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text()
    assert not re.search(r"(?m)^\s*-(?!-hash=sha256:)|://| /", text), (
        "an option, an address, a path"
    )
    return dict(re.findall(r"(?m)^([a-z0-9-]+)==([^ ;]+)", text))


def test_the_wheel_brings_the_migrations(image: Image) -> None:
    (inside,) = image.prefix.glob("lib/python3*/site-packages/reservation_service/migrations")
    assert sorted(path.name for path in (inside / "sqlite").iterdir()) == MIGRATIONS != []


def test_another_user_gets_help(image: Image) -> None:
    code, output = image.run(["reservation-service", "--help"])
    assert code == 0, output
    assert "serve" in output


def test_an_image_without_keys_serves_nobody_and_says_what_to_do(image: Image) -> None:
    code, output = image.run(["reservation-service", "serve"])
    assert code == 1
    assert "add a key (reservation-service keys add NAME --scope operate)" in output


def test_another_user_serves_and_stops_on_sigterm(image: Image) -> None:
    port = free_port()
    command = [json.loads(rests(stages()[-1], word)[0]) for word in ("ENTRYPOINT", "CMD")]
    server = image.start(
        command[0] + command[1],
        RESERVATION_SERVICE__SERVER__HOST="127.0.0.1",
        RESERVATION_SERVICE__SERVER__PORT=str(port),
    )
    try:
        wait_until_healthy(image, server, port)
        assert call(port, "/")["service"] == "reservation-expiry"
        assert call(port, "/reservations/seat-1", b'{"ttlSeconds": 600}')["status"] == "held"
    finally:
        server.send_signal(signal.SIGTERM)
        output, _ = server.communicate(timeout=10)
    assert server.returncode == 0, output
    assert (image.data / "reservations.db").stat().st_uid == image.user


def wait_until_healthy(image: Image, server: subprocess.Popen[str], port: int) -> None:
    check = [word.replace("8787", str(port)) for word in health_check()]
    deadline = time.monotonic() + 20
    while image.run(check)[0] != 0:
        assert server.poll() is None, server.communicate()[0]
        assert time.monotonic() < deadline, "the health check never passed"
        time.sleep(0.2)


def call(port: int, path: str, body: bytes | None = None) -> dict[str, object]:
    request = Request(f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=5) as answer:
        read: dict[str, object] = json.load(answer)
        return read


def free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
