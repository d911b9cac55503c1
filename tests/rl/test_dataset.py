"""Rows hold the engine's own ids: whatever a text would re-encode to, what is learnt is what was produced, id for id."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.errors import SplitError, UsageError
from harness.hint import Hint, Recalled
from harness.message import Action, Message, Observation, Tokens
from harness.policy import Policy
from harness.prompt import render
from harness.spec import HarnessSpec, Prompts
from harness.task import Split, Task
from harness.trajectory import Step, Trajectory
from rl.dataset import Row, rows

SPEC = HarnessSpec(policy=Policy(model="local/toy"), prompts=Prompts(dialect="terminal", system="Terminal.", tokens=16))
PAIRS = {"ab": 300, "ba": 301, "aa": 302, "\n>": 303}
"""A tokenizer with merges: `ab` is one id, yet an engine may as well have produced its two letters."""
TEXTS = {number: text for text, number in PAIRS.items()}
HINT = Hint(kind="skill", id="skill-1", name="helpful", version=1, text="Request: a\n> b", score=1.0, ranker="dense")


def encode(text: str) -> list[int]:
    ids, place = [], 0
    while place < len(text):
        pair = text[place : place + 2]
        ids.append(PAIRS.get(pair, ord(text[place])))
        place += 2 if pair in PAIRS else 1
    return ids


def decode(ids: Sequence[int]) -> str:
    return "".join(TEXTS.get(id, chr(id)) if id else "" for id in ids)


def engine(messages: Sequence[Message]) -> list[int]:
    """What an engine that keeps its own outputs would be given."""
    return [id for m in messages for id in (m.tokens.ids or encode(str(m.content)))]


def output(ids: Sequence[int], turn: int, *, error: bool = False, given: int = 0, finish: str = "stop") -> Step:
    mask = [place >= given for place in range(len(ids))]
    tokens = Tokens(ids=tuple(ids), logprobs=(-0.1,) * len(ids), mask=tuple(mask))
    seen = Observation(content="no such thing" if error else "done", error=error)
    text = decode(ids).rstrip("\n")
    return Step(turn=turn, action=Action(kind="call", tool="x"), observation=seen, text=text, tokens=tokens, finish=finish)


def episode(steps: Sequence[Step], split: Split = "train", hints: tuple[Hint, ...] = (HINT,)) -> Trajectory:
    return Trajectory(
        id="run-1", task=Task(instruction="do it", environment="toy", split=split), spec=SPEC.digest, policy="local/toy", seed=0,
        recalled=Recalled(hints=hints), steps=tuple(steps), created=datetime.now(UTC),
    )  # fmt: skip


def learnt(found: Sequence[Row]) -> list[int]:
    return [id for row in found for id, own in zip(row.ids, row.mask, strict=True) if own]


letters = st.sampled_from([ord("a"), ord("b"), ord("c"), *(number for number in TEXTS if number != PAIRS["\n>"])])
outputs = st.lists(st.lists(letters, min_size=1, max_size=6), min_size=1, max_size=4)


@given(outputs)
def test_what_is_learnt_is_what_the_engine_produced(produced: list[list[int]]) -> None:
    run = episode([output([*ids, ord("\n")], turn) for turn, ids in enumerate(produced)])
    found = rows(run, SPEC, (), engine)
    assert learnt(found) == [id for ids in produced for id in (*ids, ord("\n"))]


@given(outputs)
def test_a_text_that_is_encoded_again_would_teach_other_ids(produced: list[list[int]]) -> None:
    """The law above can fail: with `encode(text)` in the ids' place it does, wherever the two differ."""
    assume(any(encode(decode(ids)) != ids for ids in produced))
    run = episode([output(encode(decode([*ids, ord("\n")])), turn) for turn, ids in enumerate(produced)])
    assert learnt(rows(run, SPEC, (), engine)) != [id for ids in produced for id in (*ids, ord("\n"))]


@given(outputs)
def test_the_context_of_each_output_is_the_student_s_prompt(produced: list[list[int]]) -> None:
    """Without the hint, rendered anew: never the teacher's prompt with words cut out."""
    run = episode([output([*ids, ord("\n")], turn) for turn, ids in enumerate(produced)])
    for place, row in enumerate(rows(run, SPEC, (), engine, without={"skill-1"})):
        first = tuple(engine(render(SPEC, run.task, (), (), run.steps[:place], run.opening)))
        assert row.ids[: len(first)] == first
        assert not any(row.mask[: len(first)])
    assert decode(rows(run, SPEC, (), engine)[0].ids).count("Request:") == 2
    assert decode(rows(run, SPEC, (), engine, without={"skill-1"})[0].ids).count("Request:") == 1


def test_a_prompt_that_extends_the_ids_goes_on_in_the_same_row() -> None:
    run = episode([output([*map(ord, "ab"), 10], 0), output([*map(ord, "cb"), 10], 1)])
    [row] = rows(run, SPEC, (), engine)
    assert learnt([row]) == [*map(ord, "ab"), 10, *map(ord, "cb"), 10]


def test_a_prompt_that_does_not_extend_them_forks_a_row_and_teaches_nothing_twice() -> None:
    run = episode([output([*map(ord, "ab"), 10], 0), output([*map(ord, "cb"), 10], 1)])

    def forgetful(messages: Sequence[Message]) -> list[int]:
        """An engine that encodes the outputs of earlier turns again."""
        return [id for m in messages for id in encode(str(m.content))]

    first, second = rows(run, SPEC, (), forgetful)
    assert learnt([first]) == [*map(ord, "ab"), 10]
    assert learnt([second]) == [*map(ord, "cb"), 10]


def test_what_was_given_and_what_failed_is_context_and_no_target() -> None:
    run = episode([output([*map(ord, "ab"), 10], 0, error=True), output([*map(ord, "abc"), 10], 1, given=2)])
    assert learnt(rows(run, SPEC, (), engine)) == [ord("c"), 10]


@pytest.mark.parametrize("split", ["validate", "test"])
def test_runs_of_another_split_are_refused_by_name(split: Split) -> None:
    with pytest.raises(SplitError, match=f"run-1 is of {split}"):
        rows(episode([output([97], 0)], split), SPEC, (), engine)


def test_a_hosted_model_s_run_is_refused() -> None:
    step = output([97], 0).replace(tokens=Tokens())
    with pytest.raises(UsageError, match="step 1: the model gave no token ids"):
        rows(episode([step]), SPEC, (), engine)
