"""Batches on their way to the writer's process, and their results on the way back."""

import sqlite3
from collections.abc import Sequence
from typing import get_args

import msgspec
import pytest

from reservation_service.reservation import (
    Cancel,
    Confirm,
    Expire,
    Extend,
    Fire,
    Hold,
    Outcome,
    Plan,
    PlanVerdict,
    Release,
    Reservation,
    Status,
    Trigger,
)
from reservation_service.storage.packed import PackedTransaction, pack, unpack
from reservation_service.store import (
    Claim,
    Claimed,
    Place,
    Probe,
    Probed,
    Purge,
    Purged,
    Result,
    Retry,
    StoreMessage,
)

HOLDER = bytes(range(32))
MESSAGES: list[StoreMessage] = [
    Hold("seat-1", 60_000, 120_000, 20, HOLDER),
    Hold("seat-2", 60_000, 120_000, trigger=Trigger.REPLAY),
    Expire("seat-3", Trigger.ALARM, retry_count=3),
    Expire("seat-4", Trigger.REPLAY, 1_000),
    Extend("seat-5", 60_000, 120_000, HOLDER, 2),
    Confirm("seat-6", HOLDER, None, if_still_free=True),
    Release("seat-7", operator=True),
    Plan("seat-8", "call", 1_000, 60_000, '{"a":1}', HOLDER, 3, operator=True),
    Cancel("seat-9", "call", HOLDER, operator=True),
    Fire("seat-10", 7, 1_000, 2),
    Retry("seat-11", 1 << 40, 2_000, 1_000, record=True),
    Claim(10, 10_000, ["seat-11"]),
    Purge(200, 1, 2, Place(3, "seat-12")),
    Probe(),
]


def row(name: str) -> Reservation:
    return Reservation(name, Status.HELD, 1, 1, 2, None, None, None, 0, 2, 1, alarm_running=True)


def result(message: StoreMessage) -> Result:
    if isinstance(message, Claim):
        return [Claimed(name, 1, 900, 1, 1 << 40, 1_000) for name in ("seat-13", "seat-14")]
    if isinstance(message, Purge):
        return Purged(1, 2, message)
    if isinstance(message, Probe):
        return Probed()
    return Outcome(
        True, False, 1_000, row(message.id), HOLDER.hex(), limited_until=5, plan=PlanVerdict.SAME
    )


class Transaction:
    """Remembers its batch; the results are made up."""

    batch: Sequence[StoreMessage] = ()

    def __call__(
        self, _: sqlite3.Connection, messages: Sequence[StoreMessage]
    ) -> tuple[list[Result], int | None]:
        self.batch = messages
        return [result(message) for message in messages], 1_000


def sent(messages: Sequence[StoreMessage]) -> tuple[Transaction, tuple[list[Result], int | None]]:
    """The batch as it arrived, and the results as they came back."""
    transaction = Transaction()
    packed = PackedTransaction(transaction)  # type: ignore[arg-type]
    answered = packed(sqlite3.Connection(":memory:"), pack(messages))
    return transaction, unpack(answered, messages)


def test_every_message_is_among_these() -> None:
    assert {type(message) for message in MESSAGES} == set(get_args(StoreMessage))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent_and_so_does_its_result(message: StoreMessage) -> None:
    transaction, answered = sent([message])
    assert transaction.batch == [message]
    assert answered == ([result(message)], 1_000)


def test_results_come_back_in_the_order_of_their_messages() -> None:
    messages = [*MESSAGES, *reversed(MESSAGES)]
    transaction, (results, _) = sent(messages)
    assert transaction.batch == messages
    assert results == [result(message) for message in messages]


def test_every_field_of_an_outcome_is_among_what_was_compared() -> None:
    outcome = result(MESSAGES[0])
    assert isinstance(outcome, Outcome)
    defaults = [field.default for field in msgspec.structs.fields(Outcome)]
    assert all(value != default for value, default in zip(astuple(outcome), defaults, strict=True))


def astuple(outcome: Outcome) -> tuple[object, ...]:
    return msgspec.structs.astuple(outcome)
