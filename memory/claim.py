"""Claim: a folder that one process owns, for files that can be made again; those that may be torn are thrown away unread."""

import hashlib
import os
import shutil
import uuid
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from harness.errors import StoreError

_LOCK = "lock"


class Claim:
    """Holds the lock of a folder until it is closed or the process ends, however it ends.

    The lock file names the subfolder in use and the checksum of its files, and is empty while somebody works there. So what
    a killed process left, or a disk has changed since, is known before anything reads it.
    """

    def __init__(self, folder: Path, lock: int) -> None:
        """Use `take`."""
        self.folder = folder
        name, _, checksum = os.pread(lock, 1000, 0).decode(errors="replace").partition(" ")
        self._state = _State(folder, lock, name)
        if not name.isalnum() or not self.path.is_dir() or _checksum(self.path) != checksum:
            self.renew()
        os.ftruncate(lock, 0)
        self._finish = weakref.finalize(self, _State.let_go, self._state)

    @classmethod
    def take(cls, folder: Path) -> Self | None:
        """The claim, or None when somebody else has the folder, be it in this process.

        Raises StoreError when the folder cannot be made.
        """
        try:
            import fcntl
        except ImportError:  # a system without such locks: nobody owns a folder there
            return None
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"index folder {folder}: {error.strerror}; choose another data directory") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return None
        return cls(folder, lock)

    @property
    def path(self) -> Path:
        """Where to work."""
        return self.folder / self._state.name

    def renew(self) -> None:
        """Remove everything and begin in an empty subfolder with a new name, since libraries remember paths."""
        for entry in self.folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
        self._state.name = uuid.uuid4().hex
        self.path.mkdir(mode=0o700)

    def close(self) -> None:
        """Let another process have the folder as it is."""
        self._finish()


@dataclass
class _State:
    folder: Path
    lock: int
    name: str

    def let_go(self) -> None:
        os.pwrite(self.lock, f"{self.name} {_checksum(self.folder / self.name)}".encode(), 0)
        os.close(self.lock)


def _checksum(folder: Path) -> str:
    whole = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole.update(f"{file.relative_to(folder)} {file.stat().st_size} ".encode())
        with file.open("rb") as opened:
            whole.update(hashlib.file_digest(opened, "sha256").digest())
    return whole.hexdigest()
