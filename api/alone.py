"""Alone: changing an agent is for one process at a time; what was killed holds nothing."""

import contextlib
import os
from collections.abc import Iterator

from api.settings import Settings
from harness.errors import UsageError
from harness.value import digest


@contextlib.contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Hold the agent of this data directory; raises UsageError at once when another process does."""
    settings.data.mkdir(parents=True, exist_ok=True)
    path = settings.data / f"{digest(settings.agent)[:16]}.lock"
    with path.open("a+", encoding="utf-8") as lock:
        try:
            import fcntl
        except ImportError:  # a system without such locks: the ledger still counts no pair twice
            yield
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            raise UsageError(
                f"agent {settings.agent!r} in {settings.data} is being changed by process {lock.read().strip() or 'unknown'}:"
                " wait until that has ended, or choose another --agent or --data"
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
