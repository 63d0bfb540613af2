"""One named event is one JSON line, whatever is in its fields."""

import asyncio
import contextvars
import errno
import json
from io import BytesIO

import pytest

from reservation_service.correlation import REQUEST_ID
from reservation_service.telemetry import Telemetry
from tests.support.clock import START, FakeClock


@pytest.fixture
def stream() -> BytesIO:
    return BytesIO()


@pytest.fixture
def telemetry(stream: BytesIO, clock: FakeClock) -> Telemetry:
    return Telemetry(clock, stream)


def test_the_name_comes_first_then_service_time_then_the_fields(
    telemetry: Telemetry, stream: BytesIO
) -> None:
    telemetry.observe("reservation-alarm", reservation_id="seat-1", is_retry=False)
    assert stream.getvalue() == (
        b'{"event":"reservation-alarm","timestamp":%d,"reservationId":"seat-1","isRetry":false}\n'
        % START
    )


def test_fields_are_camel_case(telemetry: Telemetry, stream: BytesIO) -> None:
    telemetry.observe("x", next_due_at=1, url="u", claims_voided=2)
    assert list(json.loads(stream.getvalue())) == [
        "event",
        "timestamp",
        "nextDueAt",
        "url",
        "claimsVoided",
    ]


def test_a_line_that_is_for_a_request_has_its_id(telemetry: Telemetry, stream: BytesIO) -> None:
    def answer() -> None:
        REQUEST_ID.set("abc-1")
        telemetry.observe("request-failed", path="/")

    contextvars.copy_context().run(answer)
    telemetry.observe("purged")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["requestId"] == "abc-1"
    assert "requestId" not in second


def test_for_people_a_line_is_text(stream: BytesIO, clock: FakeClock) -> None:
    telemetry = Telemetry(clock, stream, is_for_people=True)
    telemetry.observe("reservation-alarm", reservation_id="seat-1", lateness_ms=3)
    text = stream.getvalue().decode()
    assert text == (
        "2027-01-15 08:00:00 UTC reservation-alarm    latenessMs=3 reservationId='seat-1'\n"
    )


@pytest.mark.parametrize("hostile", ["a\nb", "a\r\nb", "\x1b[2J", "\x00", "\u2028", "\u202e"])
def test_no_field_can_forge_a_line_for_people(
    stream: BytesIO, clock: FakeClock, hostile: str
) -> None:
    Telemetry(clock, stream, is_for_people=True).observe("request", path=hostile)
    line, rest = stream.getvalue().split(b"\n", 1)
    assert rest == b""
    assert all(0x20 <= byte < 0x7F for byte in line)


@pytest.mark.parametrize("hostile", ["a\nb", "a\r\nb", '"}\n{"event":"forged', "\x1b[2J", "\x00"])
def test_no_field_can_forge_a_line(telemetry: Telemetry, stream: BytesIO, hostile: str) -> None:
    telemetry.observe("request", path=hostile)
    line, rest = stream.getvalue().split(b"\n", 1)
    assert rest == b""
    assert all(byte >= 0x20 for byte in line)
    assert json.loads(line)["path"] == hostile


def test_time_is_read_when_the_event_happens(
    telemetry: Telemetry, stream: BytesIO, clock: FakeClock
) -> None:
    telemetry.observe("first")
    clock.advance(7)
    telemetry.observe("second")
    times = [json.loads(line)["timestamp"] for line in stream.getvalue().splitlines()]
    assert times == [START, START + 7]


class CountingStream(BytesIO):
    writes = 0

    def write(self, data: object) -> int:
        self.writes += 1
        return super().write(data)  # type: ignore[arg-type]


async def test_the_lines_of_one_pass_of_the_loop_are_written_together(clock: FakeClock) -> None:
    stream = CountingStream()
    telemetry = Telemetry(clock, stream)
    for number in range(5):
        telemetry.observe("x", number=number)
    await asyncio.sleep(0)
    assert [json.loads(line)["number"] for line in stream.getvalue().splitlines()] == list(range(5))
    assert stream.writes == 1


async def test_what_waits_can_be_written_before_the_end(
    telemetry: Telemetry, stream: BytesIO
) -> None:
    telemetry.observe("service-failed")
    telemetry.flush()
    assert json.loads(stream.getvalue())["event"] == "service-failed"
    await asyncio.sleep(0)
    assert stream.getvalue().count(b"\n") == 1


class FillableStream(BytesIO):
    is_full = False

    def write(self, data: object) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)  # type: ignore[arg-type]


async def test_lines_that_cannot_be_written_are_counted_and_disturb_nobody(
    clock: FakeClock,
) -> None:
    stream = FillableStream()
    telemetry = Telemetry(clock, stream)
    stream.is_full = True
    for _ in range(2):
        telemetry.observe("lost")
        telemetry.observe("lost")
        telemetry.flush()
    stream.is_full = False
    telemetry.observe("written")
    telemetry.flush()
    telemetry.flush()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["written", "log-lines-lost"]
    assert lines[1]["lines"] == 4
