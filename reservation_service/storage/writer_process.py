"""The writer's own process: `python -m reservation_service.storage.writer_process SOCKET DATABASE`.

It has the connection that writes, and calls one function after another on it, while the event loop
of the service goes on with its requests on another core. It ends when its socket is closed, however
the service came to its end; the lock file stays locked until then.
"""

import gc
import os
import signal
import socket
import sqlite3
import sys
from pathlib import Path
from typing import BinaryIO

from reservation_service.storage.calls import (
    SIGNALS_IGNORED,
    Answer,
    Call,
    pack_answer,
    read_call,
)
from reservation_service.storage.sqlite_files import connect_to_write

_GC_THRESHOLDS = 50_000, 20, 100


def main(number: int, database: Path) -> None:
    """Serve the other end of the inherited socket `number` until it is closed."""
    for ending in SIGNALS_IGNORED:
        signal.signal(ending, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS_IGNORED)
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    with socket.socket(fileno=number) as link, link.makefile("rb") as calls:
        try:
            _serve(link, calls, database)
        except (EOFError, ConnectionError):
            # Whoever was served is gone. Closing the database would copy all of its log first, and
            # the next service waits for this process.
            os._exit(0)


def _serve(link: socket.socket, calls: BinaryIO, database: Path) -> None:
    try:
        connection = connect_to_write(database)
    except (sqlite3.Error, OSError) as error:
        link.sendall(pack_answer(Answer(None, error)))
        return
    link.sendall(pack_answer(Answer(None)))
    while True:
        link.sendall(pack_answer(_answer(connection, read_call(calls))))


def _answer(connection: sqlite3.Connection, call: Call) -> Answer:
    try:
        return Answer(call.function(connection, *call.args, **call.kw))
    except Exception as error:  # noqa: BLE001 - it is the caller's, whatever it is
        return Answer(None, error, error.__cause__)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
