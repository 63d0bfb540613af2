"""Schemathesis against a real server: whatever it makes up, no answer is undocumented or a 5xx."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.commands import keys
from tests.process.conftest import MakeServer
from tests.process.server import Server, environment

CONFIG = Path(__file__).with_name("schemathesis.toml")
EXAMPLES = 12
CONTROL_EXAMPLES = 2
SECONDS_MAX = 120

pytestmark = pytest.mark.timeout(SECONDS_MAX + 10)


class Attack:
    """A server that asks for keys, and the tool that knows its document and one key."""

    def __init__(self, server: Server, token: str, folder: Path) -> None:
        self.server = server
        self._token = token
        self._folder = folder

    def run(self, location: str, examples: int, *more: str) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name("schemathesis")
        return subprocess.run(
            [
                *(program, "--no-color", "--config-file", CONFIG, "run", location),
                *("--url", self.url, "--checks", "all", "--max-examples", str(examples)),
                *("--no-shrink", "--header", f"Authorization: Bearer {self._token}"),
                *more,
            ],
            cwd=self._folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"


@pytest.fixture
def attack(make_server: MakeServer, tmp_path: Path) -> Attack:
    server = make_server(reservations__require_holder="true", log__access="false")
    token = keys(server.database, "add", "staff", "--scope", "operate")
    folder = tmp_path / "attack"
    folder.mkdir()
    return Attack(server.start(), token, folder)


def test_no_answer_is_undocumented_and_none_is_a_failure(attack: Attack) -> None:
    ended = attack.run(f"{attack.url}/openapi.json", EXAMPLES)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for phase in ("Examples", "Coverage", "Fuzzing", "Stateful"):
        assert f"✅ {phase}" in ended.stdout
    assert attack.server.seen("request-failed") == []
    attack.server.stop()


@pytest.mark.system  # it tests a test
@pytest.mark.parametrize("forgotten", ["status", "key"])
def test_a_document_that_forgets_something_is_caught(
    attack: Attack, tmp_path: Path, forgotten: str
) -> None:
    document = attack.server.call("GET", "/openapi.json").body
    if forgotten == "status":
        del document["paths"]["/reservations/{id}/confirm"]["post"]["responses"]["410"]
    else:
        document["paths"]["/whoami"]["get"]["security"] = [{"key": []}]  # it asks for none
    location = tmp_path / "openapi.json"
    location.write_text(json.dumps(document))
    ended = attack.run(str(location), CONTROL_EXAMPLES, "--max-failures", "1")
    assert ended.returncode == 1, ended.stdout
    assert "unique failure" in ended.stdout
