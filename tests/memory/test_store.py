"""The store: append-only, read by split, page by page, tenant by tenant; and equal to what was put in."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.correction import Permission
from harness.errors import StoreError, UsageError
from harness.hint import Hint, Recalled
from harness.message import Action, ImagePart, Observation, TextPart, Tokens, Usage
from harness.reward import Reward
from harness.task import Split, Task
from harness.trajectory import Failure, Parent, Step, Trajectory
from memory.database import Database
from memory.store import Store

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
laws = settings(derandomize=True, deadline=None, max_examples=25)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(Database(f"sqlite:///{tmp_path / 'assay.db'}"))


def episode(id: str, *, instruction: str = "Refund order 1.", split: Split = "train", reward: float | None = 1.0) -> Trajectory:
    return Trajectory(
        id=id,
        task=Task(instruction=instruction, environment="desk", split=split),
        spec="spec-a",
        policy="local/tiny",
        seed=3,
        arm="incumbent",
        steps=(Step(turn=0, action=Action(kind="call", tool="refund"), observation=Observation(content="done", done=True)),),
        reward=None if reward is None else Reward(value=reward),
        created=NOON,
    )


def test_everything_a_trajectory_holds_comes_back(store: Store) -> None:
    full = episode("full").replace(
        parent=Parent(trajectory="mother", step=2),
        source="human",
        recalled=Recalled(hints=(Hint(kind="skill", id="d", text="know-how", score=0.5, ranker="fused"),), ranker="fused"),
        opening=Observation(content=(TextPart(text="look"), ImagePart(url="https://example.org/a.png"))),
        steps=(
            Step(
                turn=0,
                action=Action(kind="call", id="c1", tool="refund", arguments={"number": 4, "deep": [None, {"ä": 1.5}]}),
                observation=Observation(content="no such order", error=True),
                raw_thought="hm",
                permission=Permission(decision="deny", reason="no"),
                tokens=Tokens(ids=(1, 2), logprobs=(-0.25, -1e-9), mask=(True, False), version="w"),
                usage=Usage(prompt_tokens=7, seconds=0.1),
            ),
        ),
        state={"orders": [{"number": 4, "open": True}], "total": 1.1},
        error=Failure(wall="environment", message="it broke", infrastructure=True),
        stop="error",
        created=datetime(2026, 5, 1, 3, 4, 5, 678901, tzinfo=UTC) + timedelta(hours=1),
    )
    store.add(full)
    assert store.get("full") == full
    assert store.get("full").digest == full.digest


texts = st.text(max_size=30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@laws
@given(texts, texts, st.dictionaries(texts, json_values, max_size=3), st.none() | st.floats(0, 1))
def test_whatever_a_world_says_survives_the_store(
    text: str, thought: str, state: dict[str, object], reward: float | None
) -> None:
    store = Store(Database("sqlite://"))
    step = Step(turn=0, action=Action(kind="answer", text=text), observation=Observation(content=thought), thought=thought)
    put = episode("one", instruction=text, reward=reward).replace(state=state, steps=(step,), answer=text)
    store.add(put)
    assert store.of(split="train") == [put]
    store.database.close()


def test_adding_again_changes_nothing_and_other_content_is_refused(store: Store) -> None:
    store.add(episode("one"))
    store.add(episode("one"))
    assert store.count(split=None) == 1
    with pytest.raises(UsageError, match=r"trajectory 'one' is stored already.*append-only"):
        store.add(episode("one", reward=0.0))
    assert store.get("one").success


def test_proposers_see_one_split_and_listings_all(store: Store) -> None:
    for split in ("train", "validate", "test"):
        store.add(episode(split, split=split))
    assert [run.id for run in store.of(split="train")] == ["train"]
    assert [run.id for run in store.of(split=None)] == ["train", "validate", "test"]
    assert store.count(split="validate") == 1


def test_listings_narrow_by_every_column(store: Store) -> None:
    odd = episode("odd", instruction="Other.", reward=0.0).replace(spec="spec-b", arm="candidate", source="human")
    broken = episode("broken", reward=None).replace(error=Failure(wall="agent", message="no"), task=Task(instruction="X"))
    for run in (episode("plain"), odd, broken):
        store.add(run)
    found = {
        "spec": store.of(split="train", spec="spec-b"),
        "task": store.of(split="train", task=odd.task.digest),
        "arm": store.of(split="train", arm="candidate"),
        "source": store.of(split="train", source="human"),
    }
    assert {name: [run.id for run in runs] for name, runs in found.items()} == {name: ["odd"] for name in found}
    assert [run.id for run in store.of(split="train", success=True)] == ["plain"]
    assert [run.id for run in store.of(split="train", wall="agent")] == ["broken"]
    assert [run.id for run in store.of(split="train", environment="tools")] == ["broken"]
    assert store.of(split="train", spec="spec-b", success=True) == []
    assert store.count(split="train", success=False, wall="") == 1


def test_pages_go_on_where_the_last_one_ended(store: Store) -> None:
    for n in range(5):
        store.add(episode(f"run{n}"))
    first = store.of(split="train", limit=2)
    rest = store.of(split="train", after=first[-1].id)
    assert [run.id for run in first + rest] == [f"run{n}" for n in range(5)]
    latest = store.newest(split="train", limit=2)
    assert [run.id for run in latest] == ["run4", "run3"]
    assert [run.id for run in store.newest(split="train", limit=2, after="run3")] == ["run2", "run1"]
    with pytest.raises(UsageError, match="'gone' to go on after"):
        store.of(split="train", after="gone")


def test_people_name_a_run_by_its_beginning(store: Store) -> None:
    for id in ("abc", "abcd", "xyz", "x%z"):
        store.add(episode(id))
    assert store.found("xy").id == "xyz"
    assert store.found("abc").id == "abc"
    assert store.found("x%").id == "x%z"
    with pytest.raises(UsageError, match="several begin so"):
        store.found("ab")
    with pytest.raises(UsageError, match=r"none begins so; `assay runs list`"):
        store.found("q")
    with pytest.raises(UsageError, match=r"no trajectory 'ab'; `assay runs list`"):
        store.get("ab")


def test_tenants_do_not_see_each_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'assay.db'}"
    mine, theirs = Store(Database(url, "acme")), Store(Database(url, "rival"))
    mine.add(episode("one"))
    theirs.add(episode("one", reward=0.0))
    assert (mine.get("one").success, theirs.get("one").success) == (True, False)
    assert (mine.count(split=None), theirs.count(split=None)) == (1, 1)
    with pytest.raises(UsageError, match="no trajectory"):
        theirs.of(split=None, after="two")


def test_a_row_that_this_version_cannot_read_is_named(store: Store) -> None:
    store.add(episode("one"))
    with store.database.write() as session:
        session.connection().exec_driver_sql("UPDATE trajectory SET body = json_set(body, '$.novelty', 1)")
    with pytest.raises(StoreError, match=r"trajectory 'one' cannot be read by this version \(novelty"):
        store.get("one")
