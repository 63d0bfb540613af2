"""Calls of functions in another process of this program, as they go over the socket between them.

Both ends are the same program, started by the same user, so pickle may tell which function of this
package to call. A call is one pickle; an answer has its length before it, for a reader that cannot
block.
"""

import pickle
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, BinaryIO, NamedTuple

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
    """Wait for the next call. Raises EOFError when there is none any more."""
    told, args, kw = pickle.load(stream)  # noqa: S301 - from our own process
    return Call(_kept[told] if isinstance(told, int) else told, args, kw)


def pack_answer(answer: Answer) -> bytes:
    """The length and the answer; an error that cannot be pickled is told in its words."""
    try:
        packed = pickle.dumps(tuple(answer), pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001 - pickle raises whatever an object's own methods raise
        told = RuntimeError(repr(answer.error or answer.value))
        packed = pickle.dumps((None, told, None), pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(packed)) + packed


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
