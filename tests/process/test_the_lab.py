"""The lab's story against this service, with curl: what it promises, the answers show."""

import pytest

from tests.process.lab import Story

pytestmark = [
    pytest.mark.system,  # it needs curl and jq
    pytest.mark.timeout(120),
]

LAB_FIELDS = {
    "reservationId",
    "status",
    "createdAt",
    "expiresAt",
    "expiredAt",
    "expirationCount",
    "alarmAt",
}


@pytest.fixture(params=["kill", "kill -9"])
def story(request: pytest.FixtureRequest, stories: dict[str, Story]) -> Story:
    return stories[request.param]


def test_the_labs_curl_commands_work_word_for_word(story: Story) -> None:
    service, expiring, safe, expired, still_safe, replay, first, second = story.answers()

    assert service == {"service": "reservation-expiry"}
    for row in (expiring, safe, expired, still_safe, replay, first, second):
        assert row.keys() >= LAB_FIELDS

    for held, ttl_ms in ((expiring, 30_000), (safe, 3_600_000), (replay, 180_000)):
        assert (held["status"], held["expirationCount"]) == ("held", 0)
        assert held["alarmAt"] == held["expiresAt"] == held["createdAt"] + ttl_ms

    assert expired["status"] == "expired"
    assert (expired["expirationCount"], expired["alarmAt"]) == (1, None)
    assert expired["expiresAt"] == expiring["expiresAt"] <= expired["expiredAt"]
    assert still_safe == safe

    assert (first["changed"], second["changed"]) == (True, False)
    for replayed in (first, second):
        assert (replayed["status"], replayed["expirationCount"]) == ("expired", 1)
        assert replayed["expiredAt"] == replay["expiresAt"] + 1
    assert second == first | {"changed": False}
