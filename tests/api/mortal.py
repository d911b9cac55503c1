"""The command line in a process that kills itself with SIGKILL at one of its steps; run by test_kills.py.

python -m tests.api.mortal K WORDS...

A step is a statement or a commit of a database, or a change of a file in the data directory. K 0: nothing is killed, and the
number of steps is written to the file `steps` there.
"""

import atexit
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "shutil.rmtree"}


class Steps:
    def __init__(self, last: int, data: Path) -> None:
        self.last, self.data, self.seen, self.lock = last, str(data.resolve()), 0, threading.Lock()

    def step(self, *given: Any) -> None:
        with self.lock:
            self.seen += 1
            if self.seen == self.last:
                os.kill(os.getpid(), signal.SIGKILL)

    def hear(self, name: str, given: tuple[Any, ...]) -> None:
        """An audit event: a file of the data directory is about to be changed."""
        if name == "open":
            path, _, flags = given
            if isinstance(path, str | bytes | os.PathLike) and flags & (os.O_WRONLY | os.O_RDWR):
                self.changed(path)
        elif name in CHANGES and isinstance(given[0], str | bytes | os.PathLike):
            self.changed(given[0])

    def changed(self, path: Any) -> None:
        if os.fsdecode(path).startswith(self.data):
            self.step()


if __name__ == "__main__":
    data = Path(os.environ["ASSAY_DATA"])
    steps = Steps(int(sys.argv.pop(1)), data)
    for moment in ("before_cursor_execute", "commit"):
        event.listen(Engine, moment, steps.step)
    sys.addaudithook(steps.hear)
    if not steps.last:
        atexit.register(lambda: (data / "steps").write_text(str(steps.seen)))
    from api.cli import main

    sys.argv[0] = "assay"
    main()
