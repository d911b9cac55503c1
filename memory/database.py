"""Database: the only door to SQL, one transaction at a time; what the rows mean is for the files that own them.

On SQLite every commit is synced to disk before it is acknowledged (WAL, synchronous=FULL), so that it survives the death of
the process and of the machine. Portable SQL passes through here as it is; only this file knows which database it is.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, DateTime, Dialect, TypeDecorator, event, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlmodel import Session, SQLModel, create_engine

from harness.errors import StoreError, UsageError

PATIENCE: Final = 30.0
"""Seconds."""

_WRITES: Final = "assay_writes"
_ADVICE: Final = {
    "SQLITE_FULL": "the disk is full: nothing of this write was kept, reading still works; free some space and run it again",
    "SQLITE_BUSY": "another process held the write lock for too long: end it, or run this again",
    "SQLITE_LOCKED": "another connection holds the table: run this again",
    "SQLITE_CORRUPT": "the file is damaged: `sqlite3 FILE .recover | sqlite3 NEW` saves what can be read; or restore a copy",
    "SQLITE_NOTADB": "the file is no SQLite database: choose another data directory, or move the file away",
    "SQLITE_READONLY": "the file or its folder is read-only: allow yourself to write there, or choose another data directory",
    "SQLITE_CANTOPEN": "it cannot be opened: check that its folder exists and that you may write there",
    "SQLITE_IOERR": "the disk failed to read or write: check its health and the quota, then run this again",
}


class Moment(TypeDecorator[datetime]):
    """Column of an aware time, kept and given back in UTC: SQLite itself has no time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC) if value else None


class Database:
    """One database as one tenant sees it; safe to share between threads and processes.

    Never `await` inside `with db.write()` or `with db.read()`: the transaction belongs to the thread.
    """

    def __init__(self, url: str, tenant: str = "default", *, patience: float = PATIENCE) -> None:
        """`url` as SQLAlchemy writes it; `sqlite://` lives in memory. `patience`: seconds to wait for another process's write.

        Raises UsageError on a bad url or an empty tenant, StoreError when the file's folder cannot be made.
        """
        if not tenant.strip():
            raise UsageError("tenant: found an empty name; every row belongs to one, give it (the default is 'default')")
        try:
            parsed = make_url(url)
        except SQLAlchemyError as error:
            raise UsageError(f"database url: found {url!r}; allowed is e.g. sqlite:////absolute/path/assay.db") from error
        self.tenant = tenant
        self.name = parsed.render_as_string(hide_password=True)
        self._lite = parsed.get_backend_name() == "sqlite"
        self._memory = self._lite and parsed.database in (None, "", ":memory:")
        self._local = threading.local()
        self._turn = threading.RLock()
        self._created: set[str] = set()
        options: dict[str, Any] = {"connect_args": {"timeout": patience}} if self._lite else {"pool_pre_ping": True}
        if self._memory:
            options = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
        elif self._lite:
            _folder(Path(str(parsed.database)).parent)
        try:
            self._engine = create_engine(parsed, **options)
        except (SQLAlchemyError, ImportError) as error:
            raise UsageError(
                f"database {self.name}: {error}; install its driver, or use sqlite:////absolute/path/assay.db"
            ) from error
        if self._lite:
            event.listen(self._engine, "connect", partial(_prepare, patience))
            event.listen(self._engine, "begin", _begin)

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction, alone from its first statement on: committed at the end, rolled back on any exception.

        Raises StoreError when the database fails, and for a write inside a write (pass the session on instead).
        """
        if self._open() is not None:
            raise StoreError(
                "a write is open on this thread already: pass its session on, and never await inside `with db.write()`"
            )
        with (
            self._exclusive(),
            self._translated(),
            self._engine.connect() as connection,
            Session(connection.execution_options(**{_WRITES: True}), expire_on_commit=False) as session,
        ):
            self._local.session = session
            try:
                self._alone(session.connection())
                yield session
                session.commit()
            finally:
                self._local.session = None

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session for reading, of one snapshot; inside a write on the same thread it is the writing session itself.

        What is added to it is not stored. Raises StoreError when the database fails.
        """
        writing = self._open()
        if writing is not None:
            yield writing
            return
        with self._translated():
            if self._memory:
                with self._turn, Session(self._engine, expire_on_commit=False) as session:
                    yield session
            else:
                with Session(self._engine, expire_on_commit=False) as session:
                    yield session

    def create(self, *rows: type[SQLModel]) -> None:
        """Create the tables that are missing, with their indexes.

        Raises StoreError for a table that another version of Assay has made with fewer columns.
        """
        tables = [table for row in rows if (table := SQLModel.metadata.tables[str(row.__tablename__)]).name not in self._created]
        if not tables:
            return
        with self.read() as session:
            found = inspect(session.connection())
            missing = []
            for table in tables:
                if not found.has_table(table.name):
                    missing.append(table)
                elif lost := {c.name for c in table.columns} - {c["name"] for c in found.get_columns(table.name)}:
                    raise StoreError(
                        f"database {self.name}: table {table.name} lacks {', '.join(sorted(lost))}; "
                        "another version of Assay made it: use that version, or choose another data directory"
                    )
        if missing:
            with self.write() as session:
                connection = session.connection()
                for table in missing:
                    connection.execute(CreateTable(table, if_not_exists=True))
                    for index in table.indexes:
                        connection.execute(CreateIndex(index, if_not_exists=True))
        self._created.update(table.name for table in tables)

    def close(self) -> None:
        """Close every connection that is not in use; the next transaction would open new ones."""
        self._engine.dispose()

    def _open(self) -> Session | None:
        session: Session | None = getattr(self._local, "session", None)
        return session

    def _alone(self, connection: Connection) -> None:
        """Take the write lock now, not at the first change: what a transaction has read must still hold when it writes."""
        if connection.dialect.name == "postgresql":  # SQLite took its own with BEGIN IMMEDIATE
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"assay {self.tenant}",))

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """SQLite has one writer: the threads of this process queue here, in order, instead of polling the file."""
        if self._lite:
            with self._turn:
                yield
        else:
            yield

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise StoreError(f"database {self.name}: {_explained(error)}") from error


def _folder(folder: Path) -> None:
    """The data directory is its owner's alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"database folder {folder}: {error.strerror}; choose another data directory") from error


def _prepare(patience: float, connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where `_begin` says, not where the driver guesses
    _log_ahead(connection, time.monotonic() + patience)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _log_ahead(connection: sqlite3.Connection, deadline: float) -> None:
    """Into WAL mode. Of two that take a new file there at once, SQLite refuses one without waiting."""
    while True:
        try:
            return connection.execute("PRAGMA journal_mode=WAL").close()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _begin(connection: Connection) -> None:
    """A writer must take its lock at once: one that reads first fails as soon as another process has written (BUSY_SNAPSHOT)."""
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _explained(error: DBAPIError) -> str:
    code = str(getattr(error.orig, "sqlite_errorname", ""))
    for name, advice in _ADVICE.items():
        if code.startswith(name):
            return f"{error.orig}; {advice}"
    return f"{error.orig or error}; if it comes back, report it with the command that you ran"
