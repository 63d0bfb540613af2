"""The README's own commands, run as they stand there."""

import json
import re
import subprocess

import pytest

from tests.process.conftest import MakeServer
from tests.process.server import ROOT, Server, json_documents

pytestmark = pytest.mark.system  # it needs curl

README = (ROOT / "README.md").read_text()


def commands(heading: str) -> list[str]:
    """The lines of the last bash block below a heading, up to the next one."""
    section = re.split(r"\n##+ ", re.split(rf"\n##+ {heading}\n", README)[1])[0]
    *_, last = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    return str(last).strip().splitlines()


def bash(lines: list[str], server: Server) -> str:
    """What a script prints, with the server's port in place of the usual one."""
    script = "\n".join(lines).replace("8787", str(server.port))
    return subprocess.run(
        ["bash", "-euc", script], capture_output=True, text=True, timeout=20, check=True
    ).stdout


@pytest.fixture
def server(make_server: MakeServer) -> Server:
    """As it comes out of the box, but for the port."""
    return make_server(reservations__ttl_seconds_min=5)


def test_the_first_curl_of_the_readme_gets_what_the_readme_shows(server: Server) -> None:
    (held,) = json_documents(bash(commands("Start"), server.start()))
    shown = next(json_documents(README.split("```json\n")[1].split("```")[0]))
    assert held.keys() == shown.keys()
    assert held["expiresAt"] - held["createdAt"] == shown["expiresAt"] - shown["createdAt"]
    times = ("createdAt", "expiresAt", "alarmAt")
    assert held == shown | {name: held[name] for name in times}


@pytest.mark.parametrize("heading", ["The API in ten lines of curl", "Planned events"])
def test_the_api_of_the_readme_answers_what_its_comments_say(server: Server, heading: str) -> None:
    lines = commands(heading)
    calls = [line for line in lines if line.startswith("curl ")]
    assert len(lines) <= 10
    with_status = [line.replace("curl ", "curl -s -w '%{http_code}\\n' ", 1) for line in lines]
    *answers, _ = re.split(r"(?<=})(\d{3})\n", bash(with_status, server.start()))
    assert len(answers) == 2 * len(calls)
    for call, body, status in zip(calls, answers[::2], answers[1::2], strict=True):
        comment = call.split(" # ")[1]
        assert status == comment[:3], call
        for word in re.findall(r'already-\w+|held|missing|expired|confirmed|"\w+":\w+', comment):
            assert word in body, call


def test_what_happens_is_followed_as_the_readme_says(server: Server) -> None:
    server.start().hold("seat-12", 60)
    page, stream = commands("Follow what happens")
    (found,) = json_documents(bash([page], server))
    assert (found["nextAfter"], found["reset"]) == (1, False)
    shown = README.split("\ndata: ")[1].split("\n")[0]
    assert list(found["items"][0]) == list(json.loads(shown))
    assert bash([f"timeout 3 {stream} || true"], server).startswith("id: 1\n\n")
