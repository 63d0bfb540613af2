"""The writer's process with a planted bug: `python -m tests.torture.planted_writer BUG …`."""

import sys
from pathlib import Path

from reservation_service.storage.writer_process import main
from tests.torture import planted_service  # noqa: F401 - it knows all bugs
from tests.torture.planted import BUGS

if __name__ == "__main__":
    name, link, database = sys.argv[1:]
    BUGS[name]()
    main(int(link), Path(database))
