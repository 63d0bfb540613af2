"""What an answer must look like."""

from tests.support.harness import Answer

FIELDS = [
    "reservationId",
    "status",
    "createdAt",
    "expiresAt",
    "expiredAt",
    "expirationCount",
    "alarmAt",
    "generation",
    "confirmedAt",
    "releasedAt",
    "alarmRetryCount",
    "alarmStuck",
]

ID_SENTENCE = "Use a lowercase reservation ID containing 3-40 letters, digits, or hyphens."
BODY_SENTENCE = "Send a JSON request body."
TTL_SENTENCE = "ttlSeconds must be an integer from 5 through 3600."
NOW_SENTENCE = "now must be a positive integer timestamp."


def assert_problem(answer: Answer, status: int, code: str, sentence: str | None = None) -> None:
    """A complete problem document with this status, this code and, if given, this sentence."""
    assert (answer.status, answer.headers["Content-Type"]) == (
        status,
        "application/problem+json",
    ), answer
    document = answer.json
    assert {"type", "title", "status", "detail", "code", "error"} <= document.keys()
    assert (document["status"], document["code"]) == (status, code), document
    assert document["error"] == document["detail"]
    assert document["type"].endswith(f":{code}")
    if sentence is not None:
        assert document["error"] == sentence
    assert b"Traceback" not in answer.body
