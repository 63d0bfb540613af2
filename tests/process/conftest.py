"""Servers that end with their test, and the lab's stories, which take their half minute aside."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process.lab import Story
from tests.process.server import Server

MakeServer = Callable[..., Server]


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[MakeServer]:
    """Makes servers, each in a folder of its own unless a database is given."""
    made: list[Server] = []

    def make(database: Path | None = None, **settings: object) -> Server:
        folder = tmp_path / f"server-{len(made)}"
        folder.mkdir()
        made.append(Server(folder, database, **settings))
        return made[-1]

    yield make
    for server in made:
        server.end()


@pytest.fixture
def server(make_server: MakeServer) -> Server:
    return make_server()


@pytest.fixture(scope="session", autouse=True)
def stories(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Story]]:
    """The lab's story with each way to end a process; they run while the other tests do."""
    told: dict[str, Story] = {}
    if any("story" in getattr(item, "fixturenames", ()) for item in request.session.items):
        for way in ("kill", "kill -9"):
            told[way] = Story(tmp_path_factory.mktemp("lab"), way)
    yield told
    for story in told.values():
        story.end()
