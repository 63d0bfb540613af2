"""A destroyed namespace stays destroyed until its file is removed."""

from tests.process.commands import Ended, run
from tests.process.server import Server


def destroy(server: Server, name: str) -> Ended:
    return run("destroy", "--yes", name, "--database", str(server.database))


def test_a_destroyed_namespace_answers_410_until_its_file_is_removed(server: Server) -> None:
    server.start().hold("precious", 3600)
    assert destroy(server, "reservation-expiry").returncode == 1  # the service is not stopped
    server.stop()
    assert destroy(server, "something-else").returncode == 1
    assert server.query("SELECT count(*) FROM reservation") == [(1,)]
    assert destroy(server, "reservation-expiry").returncode == 0
    assert server.query("SELECT count(*) FROM reservation") == [(0,)]

    server.start()
    for method, path in (("GET", "/"), ("GET", "/reservations/precious"), ("POST", "/nowhere")):
        answer = server.call(method, path, {"ttlSeconds": 60} if method == "POST" else None)
        assert (answer.status, answer.body) == (410, {"status": "cleanup"})
    server.stop()

    server.database.unlink()
    assert server.start().read("precious")["status"] == "missing"
