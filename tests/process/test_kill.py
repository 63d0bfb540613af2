"""kill -9: nothing that was acknowledged is lost, nothing that was planned is forgotten."""

from collections.abc import Iterator

from tests.process.conftest import MakeServer
from tests.process.load import Load
from tests.process.server import Line, Server, eventually, wait_until_past
from tests.support.invariants import violations

EXPIRED = "SELECT id FROM reservation WHERE status = 'expired'"
PLANT = """
    CREATE TRIGGER planted BEFORE UPDATE ON reservation
    WHEN NEW.id = 'poisoned' AND NEW.status = 'expired'
    BEGIN SELECT RAISE(ABORT, 'planted failure'); END
"""


def test_a_hold_overdue_at_start_expires_once_without_traffic(server: Server) -> None:
    held = server.start().hold("nobody-calls", 1)
    server.kill()
    wait_until_past(held["expiresAt"])

    server.start()
    alarm = server.line("reservation-alarm")
    assert server.line("alarms-reloaded")["overdue"] == 1
    assert server.seen("request") == []
    assert (alarm["reservationId"], alarm["outcome"]) == ("nobody-calls", "ok")
    assert (alarm["isRetry"], alarm["retryCount"]) == (False, 0)
    assert server.query("SELECT status, expiration_count FROM reservation") == [("expired", 1)]
    assert server.query("""SELECT type, "trigger" FROM event ORDER BY seq""") == [
        ("held", "request"),
        ("expired", "alarm"),
    ]

    row = server.read("nobody-calls")
    assert (row["status"], row["expirationCount"], row["alarmAt"]) == ("expired", 1, None)
    assert row["expiredAt"] >= row["expiresAt"] == held["expiresAt"]
    server.stop()


def test_a_kill_touches_no_deadline_and_the_alarm_fires_after_the_restart(server: Server) -> None:
    long = server.start().hold("still-mine", 3600)
    short = server.hold("in-time", 2)
    server.kill()

    server.start()
    assert server.line("alarms-reloaded")["nextDueAt"] == short["expiresAt"]
    alarm = server.line("reservation-alarm")
    assert (alarm["reservationId"], alarm["outcome"]) == ("in-time", "ok")
    assert alarm["timestamp"] >= short["expiresAt"]
    assert server.seen("request") == []
    assert server.read("still-mine") == long


def test_the_retry_count_is_kept_across_kill_9(make_server: MakeServer) -> None:
    server = make_server(alarms__retry_first_ms=100, alarms__retry_cap_ms=200)
    server.start().hold("poisoned", 1)
    server.kill()
    server.change(PLANT)

    server.start()
    counted = [server.line("reservation-alarm", nth) for nth in (1, 2, 3)]
    assert [line["retryCount"] for line in counted] == [0, 1, 2]
    assert {(line["outcome"], line["error"]) for line in counted} == {("failed", "planted failure")}
    server.kill()

    server.start()
    after = server.line("reservation-alarm")
    assert after["isRetry"] is True
    assert after["retryCount"] >= 3
    row = server.read("poisoned")
    assert (row["status"], row["expirationCount"]) == ("held", 0)
    assert row["alarmRetryCount"] >= 3
    server.kill()
    server.change("DROP TRIGGER planted")

    server.start()
    healed = server.line("reservation-alarm")
    assert healed["outcome"] == "ok"
    assert healed["retryCount"] > after["retryCount"]
    assert server.read("poisoned")["expirationCount"] == 1


def test_every_acknowledged_hold_survives_a_kill_in_the_middle_of_batches(server: Server) -> None:
    load = Load()
    server.start()
    for _ in range(3):
        under_way = len(load.unanswered)
        load.kill_in_the_middle(server)
        assert len(load.unanswered) > under_way, "the kill met nobody under way"
        assert list(lost(server.start(), load.acknowledged)) == []
        assert violations(server.database) == []

    wait_until_past(max(held["expiresAt"] for held in load.short()))
    short = {(held["reservationId"],) for held in load.short()}
    eventually(lambda: short <= set(server.query(EXPIRED)))
    assert list(lost(server, load.acknowledged)) == []
    server.stop()
    assert violations(server.database) == []


def lost(server: Server, acknowledged: dict[str, Line]) -> Iterator[str]:
    """IDs whose acknowledged hold is not in the database as it was acknowledged."""
    rows = server.query("SELECT id, created_at, expires_at FROM reservation WHERE generation = 1")
    kept = {row[0]: row[1:] for row in rows}
    for reservation_id, held in acknowledged.items():
        if kept.get(reservation_id) != (held["createdAt"], held["expiresAt"]):
            yield reservation_id
