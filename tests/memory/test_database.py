"""The database: one transaction at a time, nothing acknowledged is lost, and every failure says what to do next."""

import os
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlmodel import Field, SQLModel, col, func, select

from harness.errors import StoreError, UsageError
from memory.database import Database, Moment

ROOT = Path(__file__).parents[2]


class NoteRow(SQLModel, table=True):
    __tablename__ = "note"
    id: int | None = Field(default=None, primary_key=True)
    text: str = Field(index=True)


class EventRow(SQLModel, table=True):
    __tablename__ = "event"
    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=Moment)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "assay.db"


@pytest.fixture
def database(file: Path) -> Database:
    database = Database(f"sqlite:///{file}")
    database.create(NoteRow)
    return database


def write(database: Database, *texts: str) -> None:
    with database.write() as session:
        session.add_all(NoteRow(text=text) for text in texts)


def texts(database: Database) -> list[str]:
    with database.read() as session:
        return list(session.exec(select(NoteRow.text).order_by(col(NoteRow.id))))


def program(script: str, *arguments: str) -> "subprocess.Popen[str]":
    """Another process that runs `script` with NoteRow and a database at its first argument."""
    head = (
        "import sys\nfrom sqlmodel import Field, SQLModel, select\nfrom memory.database import Database\n"
        "class NoteRow(SQLModel, table=True):\n"
        "    __tablename__ = 'note'\n"
        "    id: int | None = Field(default=None, primary_key=True)\n"
        "    text: str = Field(index=True)\n"
        "database = Database(f'sqlite:///{sys.argv[1]}')\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", head + script, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_a_write_is_kept_whole_or_not_at_all(database: Database) -> None:
    write(database, "one", "two")
    with pytest.raises(RuntimeError, match="halfway"), database.write() as session:  # noqa: PT012
        session.add(NoteRow(text="three"))
        session.flush()
        raise RuntimeError("halfway")
    assert texts(database) == ["one", "two"]


def test_a_moment_comes_back_as_the_same_moment(database: Database) -> None:
    database.create(EventRow)
    noon = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    with database.write() as session:
        session.add(EventRow(at=noon))
    with database.read() as session:
        [found] = session.exec(select(EventRow.at)).all()
    assert (found, found.tzinfo) == (noon, UTC)


def test_what_is_added_while_reading_is_not_stored(database: Database) -> None:
    with database.read() as session:
        session.add(NoteRow(text="stray"))
        session.flush()
    assert texts(database) == []


def test_a_read_inside_a_write_sees_what_was_written(database: Database) -> None:
    with database.write() as session:
        session.add(NoteRow(text="mine"))
        assert texts(database) == ["mine"]


def test_a_write_inside_a_write_is_refused_and_both_are_undone(database: Database) -> None:
    with pytest.raises(StoreError, match="pass its session on"), database.write() as session:  # noqa: PT012
        session.add(NoteRow(text="outer"))
        write(database, "inner")
    assert texts(database) == []
    write(database, "later")
    assert texts(database) == ["later"]


def test_rows_may_be_read_after_their_session_has_ended(database: Database) -> None:
    with database.write() as session:
        row = NoteRow(text="kept")
        session.add(row)
    assert (row.text, row.id) == ("kept", 1)


def test_every_commit_is_synced_and_foreign_keys_hold(database: Database, file: Path) -> None:
    with database.read() as session:
        found = [
            session.connection().exec_driver_sql(f"PRAGMA {p}").scalar() for p in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert found == ["wal", 2, 1]
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_threads_take_turns(database: Database) -> None:
    def count() -> None:
        for _ in range(10):
            with database.write() as session:
                n = session.exec(select(func.count()).select_from(NoteRow)).one()
                session.add(NoteRow(text=str(n)))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts(database) == [str(n) for n in range(40)]


def test_processes_that_create_read_and_then_write_at_once_lose_nothing(file: Path) -> None:
    script = (
        "database.create(NoteRow)\n"
        "for _ in range(25):\n"
        "    with database.write() as session:\n"
        "        n = len(session.exec(select(NoteRow)).all())\n"
        "        session.add(NoteRow(text=str(n)))\n"
    )
    with program(script, str(file)) as one, program(script, str(file)) as other:
        assert [one.wait(60), other.wait(60)] == [0, 0]
    database = Database(f"sqlite:///{file}")
    database.create(NoteRow)
    assert texts(database) == [str(n) for n in range(50)]
    with database.read() as session:
        assert session.connection().exec_driver_sql("SELECT count(*) FROM sqlite_master WHERE name='ix_note_text'").scalar() == 1


def test_what_was_acknowledged_survives_a_kill(database: Database, file: Path) -> None:
    script = (
        "n = 0\n"
        "while True:\n"
        "    with database.write() as session:\n"
        "        session.add(NoteRow(text=f'{n} {\"x\" * 5000}'))\n"
        "    print(n, flush=True)\n"
        "    n += 1\n"
    )
    begun = 0
    for kills in range(2):
        with program(script, str(file)) as other:
            assert other.stdout is not None
            for _ in range(15 + kills):
                acknowledged = int(other.stdout.readline())
            other.kill()
            rest = other.stdout.read().split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        kept = [int(text.split()[0]) for text in texts(database)][begun:]
        assert kept[: acknowledged + 1] == list(range(acknowledged + 1))
        assert len(kept) <= acknowledged + 2, "at most the one that was not acknowledged any more"
        begun += len(kept)
    with database.read() as session:
        assert session.connection().exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"


def test_a_full_disk_keeps_what_was_there_and_passes(database: Database) -> None:
    write(database, "before")
    with database.write() as session:
        pages = session.connection().exec_driver_sql("PRAGMA page_count").scalar()
        session.connection().exec_driver_sql(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreError, match=r"disk is full.*free some space"):
        write(database, *["x" * 4000] * 20)
    assert texts(database) == ["before"]
    with database.read() as session:
        session.connection().exec_driver_sql("PRAGMA max_page_count=100000")
    write(database, "after")
    assert texts(database) == ["before", "after"]


def test_a_lock_that_is_held_too_long_says_so(file: Path) -> None:
    database = Database(f"sqlite:///{file}", patience=0.05)
    database.create(NoteRow)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another process held the write lock"):
        write(database, "late")
    assert texts(database) == []
    other.execute("ROLLBACK")
    other.close()
    write(database, "in time")
    assert texts(database) == ["in time"]


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "assay.db").write_bytes(b"not a database, by any means" * 100)
    with pytest.raises(StoreError, match=r"assay\.db: file is not a database; .*choose another data directory"):
        Database(f"sqlite:///{tmp_path / 'assay.db'}").create(NoteRow)


def test_a_damaged_file_says_how_to_save_it(database: Database, file: Path) -> None:
    write(database, *["x" * 3000] * 50)
    with database.write() as session:
        session.connection().exec_driver_sql("PRAGMA user_version=1")
    database.close()
    with sqlite3.connect(file) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    raw.close()
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    file.write_bytes(data)
    with pytest.raises(StoreError, match=r"damaged: `sqlite3 FILE \.recover"):
        texts(Database(f"sqlite:///{file}"))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StoreError, match="choose another data directory"):
        Database(f"sqlite:///{tmp_path / 'taken' / 'assay.db'}")


@pytest.mark.parametrize("url", ["", "nonsense", "sqlite:/one/slash", "nosuchdb://host/db"])
def test_a_bad_url_is_refused_with_a_good_one(url: str) -> None:
    with pytest.raises(UsageError, match="sqlite:///"):
        Database(url)


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(UsageError) as raised:
        Database("nosuchdb://me:secret@host/db")
    assert "secret" not in str(raised.value)


def test_every_row_has_an_owner() -> None:
    with pytest.raises(UsageError, match="tenant: found an empty name"):
        Database("sqlite://", " ")


def test_a_table_of_another_version_is_refused_by_column(file: Path) -> None:
    file.parent.mkdir()
    raw = sqlite3.connect(file)
    raw.execute("CREATE TABLE note (id INTEGER PRIMARY KEY)")
    raw.close()
    with pytest.raises(StoreError, match=r"table note lacks text; another version of Assay"):
        Database(f"sqlite:///{file}").create(NoteRow)


def test_a_database_in_memory_is_one_for_all_threads() -> None:
    database = Database("sqlite://")
    database.create(NoteRow)
    threads = [threading.Thread(target=write, args=(database, str(n))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(texts(database)) == [str(n) for n in range(8)]
    database.close()
