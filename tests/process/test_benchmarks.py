"""Benchmarks at tiny sizes: they still run and yield their figures, which mean nothing here."""

import json
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.processes import Program, module, service
from tests.process.server import PATIENCE_S, Answer

pytestmark = pytest.mark.timeout(180)


def test_the_bare_application_answers_like_the_service(scratch: Path) -> None:
    calls = [
        ("POST", "seat-1", {"ttlSeconds": 60, "holder": "me"}),
        ("GET", "seat-1", None),
        ("POST", "seat-1/extend", {"ttlSeconds": 120, "holder": "me"}),
        ("POST", "seat-1/confirm", {"holder": "me"}),
        ("POST", "hot-seat", {"ttlSeconds": 60, "holder": "me"}),
        ("POST", "hot-seat", {"ttlSeconds": 60, "holder": "you"}),
    ]
    with (
        Program(module("bare_http"), scratch) as bare,
        Program(service(scratch / "reservations.db"), scratch) as ours,
    ):
        for method, path, body in calls:
            like, answer = (ask(one.port, method, path, body) for one in (bare, ours))
            if path != "hot-seat" or answer.status == 409:
                assert like.status == answer.status
                assert like.headers.keys() == answer.headers.keys()
                assert like.body.keys() == answer.body.keys()


def ask(port: int, method: str, path: str, body: object) -> Answer:
    text = None if body is None else json.dumps(body)
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        connection.request(
            method, f"/reservations/{path}", text, {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.headers), json.loads(answer.read()))


def test_figures_are_written_as_json_and_aims_are_counted(scratch: Path) -> None:
    file = scratch / "figures.json"
    ended = CliRunner().invoke(main, ["actors", "--short", "--json", str(file)])
    assert ended.exit_code == 0, ended.output
    assert "of 2 aims reached" in ended.output
    document = json.loads(file.read_text())
    figures = [row["figure"] for row in document["benchmarks"]["actors"]]
    assert "holds by 64 callers" in figures
    assert document["rounds"] == 1


def test_a_benchmark_that_is_not_there_is_told() -> None:
    ended = CliRunner().invoke(main, ["actorz"])
    assert ended.exit_code == 2
    assert "no benchmark actorz" in ended.output
