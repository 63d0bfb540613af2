"""What a power cut may take, and what it may not: the rules of the disk that forgets."""

from pathlib import Path

from tests.torture.forgetful import Kind, Step, _apply, _safe

DATABASE, LOG = Path("/disk/database"), Path("/disk/log")


def step(kind: Kind, path: Path = LOG, offset: int = 0, data: bytes = b"") -> Step:
    return Step(kind, path, offset, data)


def safe(*kinds: tuple[Kind, Path]) -> list[bool]:
    return _safe([step(kind, path) for kind, path in kinds])


def test_a_sync_is_good_for_what_its_file_was_given_before() -> None:
    assert safe((Kind.WRITE, LOG), (Kind.SYNC, LOG), (Kind.WRITE, LOG))[::2] == [True, False]


def test_a_sync_of_another_file_is_good_for_nothing() -> None:
    assert not safe((Kind.WRITE, LOG), (Kind.SYNC, DATABASE))[0]


def test_no_later_sync_makes_up_for_one_that_failed() -> None:
    assert not safe((Kind.WRITE, LOG), (Kind.FAILED_SYNC, LOG), (Kind.SYNC, LOG))[0]
    assert safe((Kind.FAILED_SYNC, LOG), (Kind.WRITE, LOG), (Kind.SYNC, LOG))[1]


def test_a_removal_is_kept_by_a_sync_of_the_folder() -> None:
    assert not safe((Kind.UNLINK, LOG), (Kind.SYNC, DATABASE))[0]
    assert safe((Kind.UNLINK, LOG), (Kind.SYNC, LOG.parent))[0]


def test_steps_are_applied_as_the_kernel_does() -> None:
    after = {LOG: bytearray(b"0123456789")}
    _apply(after, step(Kind.WRITE, offset=2, data=b"ab"))
    assert after[LOG] == b"01ab456789"
    _apply(after, step(Kind.WRITE, offset=12, data=b"z"))
    assert after[LOG] == b"01ab456789\0\0z"
    _apply(after, step(Kind.TRUNCATE, offset=3))
    assert after[LOG] == b"01a"
    _apply(after, step(Kind.TRUNCATE, offset=5))
    assert after[LOG] == b"01a\0\0"
    _apply(after, step(Kind.WRITE, DATABASE, data=b"new"))
    _apply(after, step(Kind.UNLINK))
    assert after == {DATABASE: b"new"}
