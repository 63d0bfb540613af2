"""Calls of functions in another process of this program, as they go over the socket between them.

Both ends are the same program, started by the same user, so pickle may tell which function of this
package to call. A call is one pickle; an answer has its length before it, for a reader that cannot
block.
"""

import pickle
import signal
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, BinaryIO, NamedTuple

SIGNALS_IGNORED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
"""They are sent to a whole group: the service alone decides what they mean."""

LENGTH = Struct("!I")
"""Comes before each answer: how many bytes follow."""

_kept: list[Callable[..., Any]] = []


class Call(NamedTuple):
    """A function of this package, called with a connection of the other process."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kw: Mapping[str, Any]


class Answer(NamedTuple):
    """What the function returned, or the error that it raised and what that came from."""

    value: Any
    error: Exception | None = None
    cause: BaseException | None = None


class Kept(NamedTuple):
    """Stands for a function that stays in the process that calls it, with what it remembers."""

    number: int

    def __call__(self, *_args: Any, **_kw: Any) -> Any:
        raise TypeError("it is in another process")


def keep(_: sqlite3.Connection, function: Any, /) -> Any:
    """Keep the function here until the process ends; what stands for it there."""
    _kept.append(function)
    return Kept(len(_kept) - 1)


def pack_call(call: Call) -> bytes:
    """The whole call, a kept function by its number; what cannot be pickled raises here."""
    function, args, kw = call
    told = function.number if isinstance(function, Kept) else function
    return pickle.dumps((told, args, kw), pickle.HIGHEST_PROTOCOL)


def read_call(stream: BinaryIO) -> Call:
    """Wait for the next call. Raises EOFError when there is none any more, or half of one."""
    try:
        told, args, kw = pickle.load(stream)  # noqa: S301 - from our own process
    except pickle.UnpicklingError as error:
        raise EOFError from error
    return Call(_kept[told] if isinstance(told, int) else told, args, kw)


def pack_answer(answer: Answer) -> bytes:
    """The length and the answer; what cannot be pickled is told in its words."""
    packed = _packed(answer) or next(filter(None, map(_packed, _in_words(answer))))
    return LENGTH.pack(len(packed)) + packed


def _in_words(answer: Answer) -> Iterator[Answer]:
    """What is next best to the answer itself."""
    value, error, cause = answer
    told = cause and RuntimeError(repr(cause))
    if error is not None:
        yield Answer(None, error, told)
    yield Answer(None, RuntimeError(repr(error or value)), told)


def _packed(answer: Answer) -> bytes | None:
    """None when it cannot be pickled, or an error cannot be made of it again."""
    try:
        packed = pickle.dumps(tuple(answer), pickle.HIGHEST_PROTOCOL)
        if answer.error is not None:
            pickle.loads(packed)  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - pickle raises whatever an object's own methods raise
        return None
    return packed


def take_answer(received: bytearray) -> Answer | None:
    """Take the first answer out of what was received, as soon as all of it is there."""
    if len(received) < LENGTH.size:
        return None
    end = LENGTH.size + LENGTH.unpack_from(received)[0]
    if len(received) < end:
        return None
    packed = bytes(received[LENGTH.size : end])
    del received[:end]
    return Answer(*pickle.loads(packed))  # noqa: S301 - from our own process
