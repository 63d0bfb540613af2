"""The record and what can be read out of it without a clock or a disk."""

import pytest

from reservation_service.reservation import AlarmInfo, Reservation, Status


def reservation(
    status: Status = Status.HELD,
    *,
    alarm_at: int | None = 6_000,
    attempts: int = 0,
    is_running: bool = False,
) -> Reservation:
    return Reservation(
        reservation_id="seat-1",
        status=status,
        generation=1,
        created_at=1_000,
        expires_at=6_000,
        expired_at=None,
        confirmed_at=None,
        released_at=None,
        expiration_count=0,
        alarm_at=alarm_at,
        alarm_attempts=attempts,
        alarm_running=is_running,
    )


@pytest.mark.parametrize(("attempts", "retries"), [(0, 0), (1, 0), (2, 1), (7, 6)])
def test_the_first_attempt_is_no_retry(attempts: int, retries: int) -> None:
    assert reservation(attempts=attempts).alarm_retry_count == retries


def test_an_alarm_is_stuck_exactly_at_the_threshold() -> None:
    assert not reservation(attempts=5).is_alarm_stuck(6)
    assert reservation(attempts=6).is_alarm_stuck(6)
    assert reservation(attempts=7).is_alarm_stuck(6)


def test_an_attempt_at_work_is_no_failure_yet() -> None:
    assert not reservation(attempts=6, is_running=True).is_alarm_stuck(6)
    assert reservation(attempts=7, is_running=True).is_alarm_stuck(6)


def test_a_slot_with_nothing_planned_is_never_stuck() -> None:
    assert not reservation(Status.EXPIRED, alarm_at=None, attempts=9).is_alarm_stuck(6)


@pytest.mark.parametrize(("retry_count", "is_retry"), [(0, False), (1, True), (5, True)])
def test_a_handler_is_told_whether_it_is_a_retry(retry_count: int, is_retry: bool) -> None:
    assert AlarmInfo(scheduled_time=6_000, retry_count=retry_count).is_retry is is_retry


def test_a_hold_is_over_at_its_deadline_and_not_a_millisecond_earlier() -> None:
    assert reservation().is_live(5_999)
    assert not reservation().is_live(6_000)


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.HELD}))
def test_only_what_is_held_is_live(status: Status) -> None:
    assert not reservation(status, alarm_at=None).is_live(0)


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        reservation().status = Status.EXPIRED  # type: ignore[misc]
