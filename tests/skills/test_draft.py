"""Worked examples: word for word, from train successes alone, the same for the same runs, and silent about whose they were."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import episode

from harness.environments.desk import oracle, tasks
from harness.errors import SplitError, UsageError
from harness.message import Action, Observation
from harness.trajectory import Failure, Step
from memory.embed import HashedWords
from skills.draft import masked, named, nearest, transcript, worked_example
from skills.skill import Provenance, name_problem

OTHER = episode(
    "run-2",
    "Refund order 4749, please.",
    [("refund 4749", "to finish, type: confirm Z11"), ("confirm Z11", "")],
)


def test_a_success_becomes_a_skill_word_for_word() -> None:
    made = worked_example([episode()])
    assert made.body == "Request: Refund order 5481.\n> refund 5481\nto finish, type: confirm Q510\n> confirm Q510\n"
    assert (made.name, made.description) == ("refund-order", "Worked example: Refund order #.")
    assert made.provenance == Provenance(source="agent", runs=("run-1",), author_model="local/tiny")
    assert made.version == 1


def test_several_stand_one_below_the_other_in_the_order_given() -> None:
    both, turned = worked_example([episode(), OTHER]), worked_example([OTHER, episode()])
    assert both.body == f"{worked_example([episode()]).body}\n{worked_example([OTHER]).body}"
    assert both.description == "Worked examples: Refund order #. / Refund order #, please."
    assert both.provenance.runs == ("run-1", "run-2")
    assert both.digest == worked_example([episode(), OTHER]).digest != turned.digest


def test_a_name_and_a_description_may_be_given() -> None:
    made = worked_example([episode()], name="mine", description="What it is for.")
    assert (made.name, made.description) == ("mine", "What it is for.")


@pytest.mark.parametrize("split", ["validate", "test"])
def test_runs_of_other_splits_are_refused(split: str) -> None:
    other = episode("run-9").replace(task=episode().task.replace(split=split))
    with pytest.raises(SplitError, match=rf"drafted from train runs alone; run run-9 is of {split}: leave it out"):
        worked_example([episode(), other])


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (episode(reward=0.9), "run run-1 has reward 0.9 after 2 steps"),
        (episode(reward=None), "run run-1 has no reward"),
        (episode(lines=()), "run run-1 has reward 1 after 0 steps"),
        (episode().replace(error=Failure(wall="agent", message="x")), "shows full successes"),
        (episode(source="teacher"), "is of source teacher; a worked example is made from policy, human, recorded alone"),
    ],
)
def test_what_is_no_success_of_the_agent_or_a_person_is_refused(run: object, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        worked_example([run])  # type: ignore[list-item]


def test_no_run_at_all_is_refused_with_the_next_step() -> None:
    with pytest.raises(UsageError, match="found none: `assay evolve` makes some"):
        worked_example([])


def test_a_persons_demonstration_is_called_so_also_among_the_agents_own() -> None:
    made = worked_example([episode(), episode("shown", source="human")])
    assert (made.provenance.source, made.provenance.note) == ("human", "runs of source human, policy")


def test_native_tool_calls_are_written_as_commands() -> None:
    calls = (
        Step(
            turn=0,
            text="Let me see.",
            action=Action(kind="call", id="c1", tool="refund", arguments={"order": 17, "why": "broken"}, text='{"order": 17}'),
            observation=Observation(content="done"),
        ),
        Step(
            turn=0,
            action=Action(kind="invalid", id="c2", tool="refnd", text="{}", problem="there is no such tool"),
            observation=Observation(content="there is no such tool", error=True),
        ),
        Step(turn=1, action=Action(kind="answer", text="Refunded."), observation=Observation(done=True)),
    )
    assert transcript(episode().replace(steps=calls)) == (
        'Request: Refund order 5481.\n> refund order=17 why="broken"\ndone\n> refnd {}\nthere is no such tool\n> Refunded.\n'
    )


def test_the_nearest_success_is_of_the_same_task_then_of_the_likeliest() -> None:
    failure = episode("failed", "Refund order 1234.", reward=0.0)
    price = episode("price", "What does a kettle cost?")
    same = episode("same", "Refund order 1234.")
    assert nearest(failure, [price, OTHER], HashedWords()).id == "run-2"
    assert nearest(failure, [price, OTHER, same], HashedWords()).id == "same"
    assert nearest(failure, [episode("first"), episode("second", "Refund order 7.")], HashedWords()).id == "first"
    with pytest.raises(UsageError, match="no success is known to set beside it: run more train tasks"):
        nearest(failure, [], HashedWords())


@pytest.mark.parametrize("family", ["refund", "return", "exchange", "price", "stock", "reorder"])
def test_descriptions_name_no_number_or_code(family: str) -> None:
    for task in tasks(family, "train", 20, 3):  # type: ignore[arg-type]
        run = episode(lines=[(line, "ok") for line in oracle(task)]).replace(task=task)
        made = worked_example([run])
        assert not any(c.isdigit() for c in made.description + made.name)


@settings(derandomize=True, deadline=None)
@given(st.text())
def test_any_request_has_a_name_and_loses_its_numbers(text: str) -> None:
    assert not name_problem(named(text) or "x")
    assert not any(c.isdecimal() for c in masked(text))
    if text.strip():
        made = worked_example([episode(instruction=text * 20)])
        assert len(made.description) <= 1024
