"""Group commit: many callers share one transaction, and none of them can tell."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import pytest

from reservation_service.errors import (
    MessageFailed,
    OutcomeUnknown,
    Overloaded,
    ServiceError,
    StorageFull,
)
from reservation_service.storage.group_commit import GroupCommit
from tests.support.gates import Gate
from tests.support.waiting import bounded


@dataclass(frozen=True)
class Note:
    """A message that says what it is."""

    id: str | None
    text: str = ""


class Disk:
    """Runs batches and remembers them; a result is the message's own text in capitals."""

    def __init__(self) -> None:
        self.batches: list[list[Note]] = []
        self.gate: Gate | None = None
        self.failures: dict[str, BaseException] = {}

    async def run(self, batch: Sequence[Note]) -> Sequence[str]:
        self.batches.append(list(batch))
        if self.gate is not None:
            await self.gate.enter()
        for note in batch:
            if note.text in self.failures:
                raise self.failures[note.text]
        return [note.text.upper() for note in batch]

    @contextmanager
    def busy(self) -> Iterator[Gate]:
        """What is submitted within gathers behind a batch at work, which ends at the end."""
        self.gate = gate = Gate(lambda _: True)
        yield gate
        self.gate = None
        gate.open()

    @property
    def texts(self) -> list[list[str]]:
        return [[note.text for note in batch] for batch in self.batches]


Commit = GroupCommit[Note, str]


@asynccontextmanager
async def running(
    disk: Disk, batch_max: int = 100, queue_max: int = 100, at_once: int = 1
) -> AsyncIterator[Commit]:
    commit: Commit = GroupCommit(
        disk.run, batch_max=batch_max, queue_max=queue_max, at_once=at_once
    )
    task = asyncio.create_task(commit.run())
    yield commit
    commit.close()
    await bounded(task, "the group commit to drain")


@asynccontextmanager
async def gathering(
    disk: Disk, batch_max: int = 100, queue_max: int = 100
) -> AsyncIterator[Commit]:
    """A commit whose first batch is at work: what is submitted within waits together."""
    async with running(disk, batch_max, queue_max) as commit:
        with disk.busy() as gate:
            first = request(commit, "first")
            await gate.reached()
            yield commit
        assert await answer(first) == "FIRST"


def request(commit: Commit, text: str, note_id: str | None = None) -> "asyncio.Future[str]":
    return commit.submit(Note(note_id or text, text), is_request=True)


def alarm(commit: Commit, text: str, note_id: str | None = None) -> "asyncio.Future[str]":
    return commit.submit(Note(note_id or text, text), is_request=False)


async def answer(future: "asyncio.Future[str]") -> str:
    return await bounded(future, "an answer")


async def error(future: "asyncio.Future[str]") -> BaseException | None:
    await bounded(asyncio.wait([future]), "an answer")
    return future.exception()


async def test_a_message_is_answered_with_its_own_result() -> None:
    async with running(Disk()) as commit:
        assert await answer(request(commit, "a")) == "A"


async def test_what_waits_while_a_batch_runs_shares_the_next_one() -> None:
    disk = Disk()
    async with gathering(disk) as commit:
        answers = [request(commit, text) for text in "abc"]
    assert [await answer(one) for one in answers] == ["A", "B", "C"]
    assert disk.texts == [["first"], ["a", "b", "c"]]


async def test_a_lone_message_waits_for_nobody_after_a_large_batch() -> None:
    disk = Disk()
    async with running(disk) as commit:
        await bounded(asyncio.gather(*(request(commit, text) for text in "abcdefgh")), "a batch")
        assert await answer(request(commit, "alone")) == "ALONE"
    assert disk.texts[-1] == ["alone"]


async def test_nothing_is_answered_before_its_batch_is_through() -> None:
    disk = Disk()
    async with running(disk) as commit:
        with disk.busy() as gate:
            future = request(commit, "a")
            await gate.reached()
            assert not future.done()
        assert await answer(future) == "A"


async def test_a_batch_is_no_larger_than_its_limit() -> None:
    disk = Disk()
    async with gathering(disk, batch_max=2) as commit:
        answers = [request(commit, text) for text in "abcde"]
    await bounded(asyncio.gather(*answers), "all answers")
    assert disk.texts[1:] == [["a", "b"], ["c", "d"], ["e"]]


async def test_two_messages_for_one_id_never_share_a_batch_and_keep_their_order() -> None:
    disk = Disk()
    async with gathering(disk) as commit:
        answers = [
            request(commit, "x1", "x"),
            request(commit, "x2", "x"),
            request(commit, "y1", "y"),
            request(commit, "x3", "x"),
            alarm(commit, "y2", "y"),
        ]
    await bounded(asyncio.gather(*answers), "all answers")
    assert disk.texts[1:] == [["x1", "y1"], ["x2", "y2"], ["x3"]]


async def test_messages_for_one_id_keep_their_order_when_more_wait_than_a_batch_takes() -> None:
    disk = Disk()
    async with gathering(disk, batch_max=2) as commit:
        answers = [
            request(commit, text, text[0]) for text in ("x1", "x2", "y1", "x3", "y2", "z1", "x4")
        ]
    await bounded(asyncio.gather(*answers), "all answers")
    assert disk.texts[1:] == [["x1", "y1"], ["x2", "y2"], ["x3", "z1"], ["x4"]]


async def test_messages_of_nobody_may_share_a_batch() -> None:
    disk = Disk()
    async with gathering(disk) as commit:
        answers = [commit.submit(Note(None, text), is_request=True) for text in "ab"]
    await bounded(asyncio.gather(*answers), "all answers")
    assert disk.texts[1:] == [["a", "b"]]


@pytest.mark.parametrize("culprit", list("abcdefg"))
async def test_one_failing_message_fails_alone_and_its_neighbours_succeed(culprit: str) -> None:
    disk = Disk()
    disk.failures[culprit] = MessageFailed()
    async with gathering(disk) as commit:
        answers = {text: request(commit, text) for text in "abcdefg"}
    for text, future in answers.items():
        if text == culprit:
            assert isinstance(await error(future), MessageFailed)
        else:
            assert await answer(future) == text.upper()
    assert disk.texts.count([culprit]) == 1


async def test_finding_the_culprit_costs_a_logarithm() -> None:
    disk = Disk()
    disk.failures["m77"] = MessageFailed()
    async with gathering(disk) as commit:
        answers = [request(commit, f"m{number}") for number in range(100)]
    outcomes = await bounded(asyncio.gather(*answers, return_exceptions=True), "all answers")
    assert [isinstance(one, MessageFailed) for one in outcomes].count(True) == 1
    assert len(disk.batches) <= 2 + 2 * 7


async def test_two_failing_messages_fail_and_nobody_else() -> None:
    disk = Disk()
    disk.failures = {"b": MessageFailed(), "f": MessageFailed()}
    async with gathering(disk) as commit:
        answers = {text: request(commit, text) for text in "abcdefg"}
    failed = [text for text, future in answers.items() if await error(future) is not None]
    assert failed == ["b", "f"]


async def test_the_queue_refuses_requests_at_its_limit_and_takes_them_again_below_it() -> None:
    disk = Disk()
    async with gathering(disk, queue_max=2) as commit:
        answers = [request(commit, text) for text in "ab"]
        with pytest.raises(Overloaded):
            request(commit, "one too many")
    await bounded(asyncio.gather(*answers), "all answers")
    async with running(disk, queue_max=2) as commit:
        assert await answer(request(commit, "c")) == "C"


async def test_alarms_get_in_when_the_queue_is_full() -> None:
    disk = Disk()
    async with gathering(disk, queue_max=1) as commit:
        request(commit, "a")
        alarms = [alarm(commit, f"alarm-{number}") for number in range(3)]
        with pytest.raises(Overloaded):
            request(commit, "b")
    assert [await answer(one) for one in alarms] == ["ALARM-0", "ALARM-1", "ALARM-2"]


async def test_each_gets_half_of_a_batch_when_requests_and_alarms_wait() -> None:
    disk = Disk()
    async with gathering(disk, batch_max=4) as commit:
        answers = [request(commit, f"r{number}") for number in range(6)]
        answers += [alarm(commit, f"a{number}") for number in range(6)]
    await bounded(asyncio.gather(*answers), "all answers")
    assert disk.texts[1:] == [
        ["r0", "r1", "a0", "a1"],
        ["r2", "r3", "a2", "a3"],
        ["r4", "r5", "a4", "a5"],
    ]


@pytest.mark.parametrize("lane", [request, alarm])
async def test_a_lane_that_waits_alone_gets_the_whole_batch(
    lane: Callable[[Commit, str], "asyncio.Future[str]"],
) -> None:
    disk = Disk()
    async with gathering(disk, batch_max=4) as commit:
        answers = [lane(commit, f"m{number}") for number in range(4)]
    await bounded(asyncio.gather(*answers), "all answers")
    assert disk.texts[1:] == [["m0", "m1", "m2", "m3"]]


@pytest.mark.parametrize("batch_max", [2, 3])
async def test_the_smallest_batches_still_serve_both_lanes(batch_max: int) -> None:
    disk = Disk()
    async with gathering(disk, batch_max=batch_max) as commit:
        answers = [request(commit, f"r{number}") for number in range(10)]
        answers += [alarm(commit, f"a{number}") for number in range(10)]
    await bounded(asyncio.gather(*answers), "all answers")
    order = [text[0] for batch in disk.texts[1:] for text in batch]
    assert set(order[:4]) == {"r", "a"}


async def test_callers_who_gave_up_are_skipped() -> None:
    disk = Disk()
    async with gathering(disk) as commit:
        kept, gone = request(commit, "kept"), request(commit, "gone")
        gone.cancel()
    assert await answer(kept) == "KEPT"
    assert disk.texts[1:] == [["kept"]]


async def test_a_caller_who_gives_up_during_its_batch_spoils_nothing() -> None:
    disk = Disk()
    async with running(disk) as commit:
        with disk.busy() as gate:
            gone, kept = request(commit, "gone"), request(commit, "kept")
            await gate.reached()
            gone.cancel()
        assert await answer(kept) == "KEPT"


async def test_trouble_fails_its_batch_as_a_whole_and_the_next_one_is_tried() -> None:
    disk = Disk()
    disk.failures["a"] = StorageFull()
    async with gathering(disk) as commit:
        answers = [request(commit, text) for text in "abc"]
    assert [type(await error(one)) for one in answers] == [StorageFull] * 3
    assert disk.texts[1:] == [["a", "b", "c"]]
    async with running(disk) as commit:
        assert await answer(request(commit, "later")) == "LATER"


async def ended(
    disk: Disk, submit: Callable[[Commit], list["asyncio.Future[str]"]]
) -> tuple[list[BaseException | None], BaseException | None, Commit]:
    """Submit behind a batch at work, let it go on to its end; the errors, and what it ended in."""
    commit: Commit = GroupCommit(disk.run, batch_max=4, queue_max=100)
    task = asyncio.create_task(commit.run())
    with disk.busy() as gate:
        request(commit, "first")
        await gate.reached()
        waiting = submit(commit)
    await bounded(asyncio.wait([task]), "the group commit to end")
    errors = [await error(one) for one in waiting]
    return errors, task.exception(), commit


async def test_a_fatal_error_ends_it_and_fails_everybody_who_waits() -> None:
    disk = Disk()
    disk.failures["a"] = OutcomeUnknown()
    errors, reason, commit = await ended(disk, lambda c: [request(c, t) for t in "abcdefgh"])
    assert [type(one) for one in errors] == [OutcomeUnknown] * 8
    assert isinstance(reason, OutcomeUnknown)
    with pytest.raises(OutcomeUnknown):
        request(commit, "afterwards")


async def test_a_fatal_error_while_halving_fails_the_other_half_too() -> None:
    disk = Disk()
    disk.failures = {"d": MessageFailed(), "a": OutcomeUnknown()}

    async def run(batch: Sequence[Note]) -> Sequence[str]:
        texts = {note.text for note in batch}
        if {"a", "d"} <= texts:
            raise disk.failures["d"]
        return await disk.run(batch)

    commit: Commit = GroupCommit(run, batch_max=4, queue_max=100)
    answers = [request(commit, text) for text in "abcd"]
    task = asyncio.create_task(commit.run())
    await bounded(asyncio.wait([task]), "the group commit to end")
    assert isinstance(task.exception(), OutcomeUnknown)
    errors = [await error(one) for one in answers]
    assert all(isinstance(one, ServiceError) for one in errors), errors


async def test_a_bug_in_the_engine_leaves_nobody_waiting() -> None:
    disk = Disk()
    disk.failures["a"] = ZeroDivisionError()
    errors, reason, _ = await ended(disk, lambda c: [request(c, t) for t in "abcdef"])
    assert all(isinstance(one, ServiceError) for one in errors), errors
    assert isinstance(reason, ZeroDivisionError)


async def test_being_cancelled_leaves_nobody_waiting() -> None:
    disk = Disk()
    commit: Commit = GroupCommit(disk.run, batch_max=2, queue_max=100)
    task = asyncio.create_task(commit.run())
    with disk.busy() as gate:
        answers = [request(commit, text) for text in "abcd"]
        await gate.reached()
        task.cancel()
        errors = [await error(one) for one in answers]
    assert all(isinstance(one, ServiceError) for one in errors), errors


async def test_as_many_batches_are_at_work_at_once_as_may_be() -> None:
    disk = Disk()
    async with running(disk, at_once=2) as commit:
        with disk.busy() as gate:
            answers = [request(commit, "a")]
            await gate.reached(1)
            answers += [request(commit, text) for text in "bc"]
            await gate.reached(2)
            answers += [request(commit, text) for text in "de"]
            await asyncio.sleep(0)
            assert disk.texts == [["a"], ["b", "c"]]
            assert not any(one.done() for one in answers)
        assert [await answer(one) for one in answers] == ["A", "B", "C", "D", "E"]
    assert disk.texts == [["a"], ["b", "c"], ["d", "e"]]


@pytest.mark.parametrize(
    ("waiting", "sizes"), [(32, [32]), (33, [32, 1]), (100, [50, 32, 18]), (400, [100, 100, 100])]
)
async def test_when_many_wait_the_batches_at_once_share_them(
    waiting: int, sizes: list[int]
) -> None:
    disk = Disk()
    async with running(disk, batch_max=100, queue_max=400, at_once=2) as commit:
        with disk.busy() as gate:
            both = [request(commit, "first")]
            await gate.reached(1)
            both.append(request(commit, "second"))
            await gate.reached(2)
            answers = [request(commit, f"note {number}") for number in range(waiting)]
        await bounded(asyncio.gather(*both, *answers), "all answers")
    assert [len(batch) for batch in disk.batches[2:]][: len(sizes)] == sizes


async def test_what_fails_alone_is_no_trouble_for_another_batch_at_work() -> None:
    disk = Disk()
    disk.failures["b"] = MessageFailed()
    async with running(disk, at_once=2) as commit:
        with disk.busy() as gate:
            first = [request(commit, text) for text in "ab"]
            await gate.reached(1)
            second = request(commit, "c")
            await gate.reached(2)
        assert await answer(first[0]) == "A"
        assert isinstance(await error(first[1]), MessageFailed)
        assert await answer(second) == "C"


async def test_a_fatal_error_of_one_batch_ends_those_at_work_beside_it() -> None:
    disk = Disk()
    disk.failures["a"] = OutcomeUnknown()
    beside = Gate(lambda _: True)

    async def run(batch: Sequence[Note]) -> Sequence[str]:
        if batch[0].text == "b":
            await beside.enter()
        return await disk.run(batch)

    commit: Commit = GroupCommit(run, batch_max=100, queue_max=100, at_once=2)
    task = asyncio.create_task(commit.run())
    with disk.busy() as gate:
        answers = [request(commit, "a")]
        await gate.reached()
        answers.append(request(commit, "b"))
        await beside.reached()
        answers.append(request(commit, "waiting"))
    await bounded(asyncio.wait([task]), "the group commit to end")
    assert isinstance(task.exception(), OutcomeUnknown)
    assert [type(await error(one)) for one in answers] == [OutcomeUnknown] * 3


@pytest.mark.parametrize("at_once", [1, 2])
async def test_closing_one_that_is_idle_ends_it(at_once: int) -> None:
    async with running(Disk(), at_once=at_once) as commit:
        assert await answer(request(commit, "a")) == "A"


async def test_closing_answers_what_was_taken() -> None:
    disk = Disk()
    async with gathering(disk, batch_max=2) as commit:
        answers = [request(commit, text) for text in "abc"] + [alarm(commit, "d")]
        commit.close()
    assert [await answer(one) for one in answers] == ["A", "B", "C", "D"]


async def test_a_closed_one_takes_nothing_more() -> None:
    async with running(Disk()) as commit:
        pass
    with pytest.raises(ServiceError):
        request(commit, "afterwards")
