"""Checkpointers: a forged checkpoint builds nothing, our nouns come back as they were, and the bytes grow with the steps."""

import os
import subprocess
import sys
from typing import Any

import ormsgpack
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from harness.checkpoint import memory, nouns, serializer, sqlite
from harness.episode import NOUNS, Brief
from harness.spec import Limits
from tests.harness.rigs import NATIVE, TASK, Rig, calls

FORGED = """
import {first}
import {then}
import os, ormsgpack
from langgraph.checkpoint.memory import InMemorySaver
from harness.checkpoint import memory, serializer

called = []
os.getcwd = lambda *given: called.append(given) or "executed"
for code, given in ((0, "x"), (1, ()), (2, {{}}), (3, "x"), (4, {{}}), (5, {{}})):
    inner = ormsgpack.packb(("os", "getcwd", given, "model_validate_json"))
    data = ("msgpack", ormsgpack.packb({{"brief": ormsgpack.Ext(code, inner)}}))
    for serde in (serializer(), memory().serde):
        assert serde.loads_typed(data) == {{"brief": list(given) if given == () else given}}, serde.loads_typed(data)
assert not called, called
InMemorySaver().serde.loads_typed(("msgpack", ormsgpack.packb(ormsgpack.Ext(1, ormsgpack.packb(("os", "getcwd", ()))))))
print("langgraph alone called", len(called))
"""


@pytest.mark.parametrize(
    ("first", "strict", "alone"),
    [
        ("langgraph.checkpoint.serde.jsonplus", None, 1),
        ("langgraph.checkpoint.serde.jsonplus", "true", 0),
        ("harness", None, 0),
    ],
)
def test_a_forged_payload_is_refused_whoever_imported_langgraph_first(first: str, strict: str | None, alone: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "LANGGRAPH_STRICT_MSGPACK"}
    if strict is not None:
        environment["LANGGRAPH_STRICT_MSGPACK"] = strict
    code = FORGED.format(first=first, then="harness")
    done = subprocess.run(
        [sys.executable, "-c", code], env={**environment, "PYTHONPATH": os.getcwd()}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # The last line shows that the forgery is real: LangGraph's own default, imported first, does execute it.
    assert done.stdout == f"langgraph alone called {alone}\n"


def test_only_our_nouns_are_allowed() -> None:
    assert set(NOUNS) <= nouns()
    assert {kind.__module__.split(".")[0] for kind in nouns()} == {"harness"}
    forged = ormsgpack.packb(ormsgpack.Ext(5, ormsgpack.packb(("harness.tool", "describe", {"function": "x"}, ""))))
    assert serializer().loads_typed(("msgpack", forged)) == {"function": "x"}


async def test_what_was_written_is_read_by_us_and_by_langgraphs_own_saver() -> None:
    async with sqlite(":memory:") as saver:
        rig = Rig([calls(("add", 1)), "done"], checkpointer=saver)
        run = await rig.agent.run(TASK, NATIVE, seed=3, thread="t")
        state = (await rig.agent.graph.aget_state({"configurable": {"thread_id": "t"}})).values
        assert (state["trajectory"], tuple(state["steps"])) == (run, run.steps)
        assert isinstance(state["brief"], Brief)
        at: Any = {"configurable": {"thread_id": "t"}}
        plain = await AsyncSqliteSaver(saver.conn, serde=serializer()).aget_tuple(at)
        assert plain == await saver.aget_tuple(at)
        assert plain is not None
        assert plain.parent_config is not None


async def test_a_file_that_langgraphs_own_saver_began_goes_on_with_ours(tmp_path: Any) -> None:
    path = tmp_path / "c.db"
    async with AsyncSqliteSaver.from_conn_string(str(path)) as theirs:
        first = Rig([calls(("add", 1)), KeyError("lost")], checkpointer=theirs)
        run = await first.agent.run(TASK, NATIVE, seed=0, thread="t")
    async with sqlite(path) as saver:
        assert await Rig([], checkpointer=saver).agent.resume("t") == run


def test_both_savers_have_the_allow_list() -> None:
    assert isinstance(memory().serde, JsonPlusSerializer)
    assert memory().serde._allowed_msgpack_modules == serializer()._allowed_msgpack_modules


async def test_the_bytes_of_all_checkpoints_grow_with_the_steps_and_not_with_their_square() -> None:
    async def size(steps: int) -> int:
        async with sqlite(":memory:") as saver:
            rig = Rig([*[calls(("add", 1))] * (steps - 1), "done"], checkpointer=saver)
            limits = Limits(steps=steps + 1, tokens=10**9)
            run = await rig.agent.run(TASK, NATIVE.replace(limits=limits), seed=0, thread="t")
            assert len(run.steps) == steps
            total = 0
            for table, column in (("checkpoints", "checkpoint"), ("checkpoints", "metadata"), ("writes", "value")):
                for (length,) in await saver.conn.execute_fetchall(f"SELECT sum(length({column})) FROM {table}"):
                    total += length
            return total

    assert await size(100) <= 12 * await size(10)
