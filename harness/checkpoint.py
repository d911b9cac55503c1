"""Checkpointers whose reader builds our own nouns and nothing else from bytes; what they hold is for `harness/episode.py`."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from harness.episode import NOUNS
from harness.value import Value

CHECKPOINT = (
    "INSERT OR REPLACE INTO checkpoints"
    " (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
WRITES = "(thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value)"


def nouns() -> frozenset[type[Value]]:
    """Every type that a checkpoint may hold: what the state carries, and what is nested in that."""
    found: set[type[Value]] = set()
    waiting: list[object] = list(NOUNS)
    while waiting:
        kind = waiting.pop()
        waiting += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, Value) and kind not in found:
            found.add(kind)
            waiting += [field.annotation for field in kind.model_fields.values()]
    return frozenset(found)


def serializer() -> JsonPlusSerializer:
    """The msgpack reader and writer with the explicit allow-list.

    LangGraph's own default reads `LANGGRAPH_STRICT_MSGPACK` when it is first imported, so that a program which imports it before
    us would execute what a forged checkpoint names; this one refuses all the same.
    """
    allowed = sorted((kind.__module__, kind.__name__) for kind in nouns())
    return JsonPlusSerializer(allowed_msgpack_modules=allowed)


def memory() -> InMemorySaver:
    """Checkpoints for as long as this process lives."""
    return InMemorySaver(serde=serializer())


class Saver(AsyncSqliteSaver):
    """LangGraph's saver with its tables and readers; each write is one statement, which is its own transaction.

    The writes of its parent take four turns of the connection's thread each, most of the time of a step.
    """

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        at = config["configurable"]
        kind, data = self.serde.dumps_typed(checkpoint)
        about = json.dumps(get_checkpoint_metadata(config, metadata), ensure_ascii=False).encode("utf-8", "ignore")
        thread, space, parent = str(at["thread_id"]), at["checkpoint_ns"], at.get("checkpoint_id")
        await self.conn.execute_fetchall(CHECKPOINT, (thread, space, checkpoint["id"], parent, kind, data, about))
        return {"configurable": {"thread_id": thread, "checkpoint_ns": space, "checkpoint_id": checkpoint["id"]}}

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        if not writes:
            return
        at = config["configurable"]
        verb = "REPLACE" if all(channel in WRITES_IDX_MAP for channel, _ in writes) else "IGNORE"
        values: list[object] = []
        for place, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, place)
            values += (
                str(at["thread_id"]),
                str(at["checkpoint_ns"]),
                str(at["checkpoint_id"]),
                task_id,
                task_path,
                index,
                channel,
            )
            values += self.serde.dumps_typed(value)
        rows = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(writes))
        await self.conn.execute_fetchall(f"INSERT OR {verb} INTO writes {WRITES} VALUES {rows}", values)


@asynccontextmanager
async def sqlite(path: Path | str) -> AsyncIterator[AsyncSqliteSaver]:
    """Checkpoints in a SQLite file, made where there is none: `async with sqlite(path) as checkpointer: Agent(...)`."""
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        saver = Saver(connection, serde=serializer())
        saver.jsonplus_serde = serializer()
        await saver.setup()
        yield saver
