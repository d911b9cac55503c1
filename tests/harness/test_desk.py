"""The front desk: its tasks are many and apart, its terminal says what the design shows, and only the right deeds are worth 1."""

import asyncio
from datetime import UTC, datetime
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.environments import desk
from harness.environments.desk_case import Case, Difficulty, Family, words
from harness.errors import UsageError
from harness.hint import Hint
from harness.message import Action, Completion, Observation
from harness.policy import Policy
from harness.prompt import parse, render, worked
from harness.reward import Reward
from harness.task import Split, Task
from harness.tool import ANSWER
from harness.trajectory import Step, Trajectory

SPEC = desk.spec(Policy(model="scripted/desk"))
KINDS = [(family, difficulty) for family in get_args(Family) for difficulty in get_args(Difficulty)]
SPLITS: tuple[Split, ...] = get_args(Split)


def typed(environment: desk.Desk, line: str) -> Action:
    """A line as the agent would act on it."""
    return parse(SPEC.prompts, Completion(text=f" {line}"), environment.tools).actions[0]


async def played(task: Task, lines: list[str], seed: int = 0) -> tuple[list[Observation], Reward, dict[str, object]]:
    """What the terminal printed, the reward, and the state that remained."""
    environment = desk.Desk(task, seed)
    assert (await environment.start()).text == ""
    printed, answer = [], ""
    for line in lines:
        action = typed(environment, line)
        answer = action.text if action.kind == "answer" else answer
        printed.append(await environment.step(action))
        if printed[-1].done:
            break
    state = await environment.state()
    await environment.close()
    run = Trajectory(id="t", task=task, spec="", policy="", seed=0, answer=answer, created=datetime.now(UTC))
    return printed, await desk.verify(task, run, state), dict(state)


# --- tasks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "difficulty"), KINDS)
def test_tasks_are_decided_by_the_seed_and_a_longer_row_begins_like_a_shorter(family: Family, difficulty: Difficulty) -> None:
    row = desk.tasks(family, "train", 40, 7, difficulty)
    assert desk.tasks(family, "train", 40, 7, difficulty) == row
    assert desk.tasks(family, "train", 15, 7, difficulty) == row[:15]
    assert len({task.digest for task in row}) == 40
    other = desk.tasks(family, "train", 40, 8, difficulty)
    assert len({task.digest for task in row} & {task.digest for task in other}) <= 2


def test_splits_share_no_word_over_thousands_of_tasks() -> None:
    named: dict[Split, set[str]] = {}
    for split in SPLITS:
        cases = [
            Case.model_validate(task.data)
            for family, difficulty in KINDS
            for seed in (0, 1)
            for task in desk.tasks(family, split, 60, seed, difficulty)
        ]
        named[split] = {word for case in cases for word in words(case.items, case.orders)}
        assert len(cases) == 2160
    assert not named["train"] & named["validate"]
    assert not named["train"] & named["test"]
    assert not named["validate"] & named["test"]


async def test_strangers_in_a_world_come_from_its_own_split_and_change_with_the_world_seed_alone() -> None:
    known: dict[Split, set[str]] = {}
    for split in SPLITS:
        task = desk.tasks("refund", split, 1, 0)[0]
        states = [await desk.Desk(task, seed).state() for seed in range(60)]
        assert (await desk.Desk(task, 5).state()) == states[5]
        assert len({str(state["orders"]) for state in states}) == 60
        known[split] = {word for state in states for key in ("orders", "shelf") for word in dict(state[key])}
    assert not known["train"] & known["validate"]
    assert not known["train"] & known["test"]
    assert not known["validate"] & known["test"]


def test_thousands_of_refunds_are_distinct() -> None:
    row = desk.tasks("refund", "test", 3000, 3)
    assert len({(task.instruction, *desk.oracle(task)) for task in row}) == 3000


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("refunds", "train", 1, 0), "family 'refunds'"),
        (("refund", "dev", 1, 0), "split 'dev'"),
        (("refund", "test", 1, 0, "hard"), "difficulty 'hard'"),
    ],
)
def test_an_unknown_word_is_refused_with_the_allowed_ones(arguments: tuple[object, ...], named: str) -> None:
    with pytest.raises(UsageError, match=named) as refused:
        desk.tasks(*arguments)
    assert "allowed are" in str(refused.value)


# --- the terminal ---------------------------------------------------------------------------------------------

EXAMPLE = """Front desk terminal. Type one command per line.

Commands:
> refund NUMBER
> confirm CODE

Request: Refund order 5481.
> refund 5481
to finish, type: confirm Q510
> confirm Q510

Request: Refund order 4749.
>"""


def refund(number: int, code: str) -> Task:
    case = {
        "family": "refund", "matters": 1, "expected": {"refunds": [number]},
        "items": [{"name": "kettle", "code": "B100", "price": 20, "shelf": 9, "supply": "X900"}],
        "orders": [{"number": number, "item": "kettle", "pieces": 2, "paid": 40, "receipt": "R100", "code": code}],
    }  # fmt: skip
    return Task(instruction=f"Refund order {number}.", environment="desk", data=case, split="train")


async def test_the_prompt_is_the_one_that_was_measured() -> None:
    earlier, task = refund(5481, "Q510"), refund(4749, "K222")
    environment = desk.Desk(earlier, 0)
    opening = await environment.start()
    steps = []
    for turn, line in enumerate(desk.oracle(earlier)):
        action = typed(environment, line)
        steps.append(Step(turn=turn, action=action, observation=await environment.step(action), text=f" {line}"))
    hint = Hint(kind="skill", id="s", text=worked(earlier, steps, opening))
    messages = render(SPEC, task, environment.tools, [hint], (), opening)
    assert "".join(str(message.content) for message in messages) == EXAMPLE
    assert (SPEC.limits.steps, SPEC.prompts.tokens) == (4, 12)


async def test_mistakes_are_answered_in_words_that_help() -> None:
    task = refund(5481, "Q510")
    printed, reward, _ = await played(
        task, ["pay 5481", "refund five", "refund 1", "confirm Q510", "refund 5481", "confirm Q511"]
    )
    assert [line.text for line in printed] == [
        "usage: refund NUMBER | confirm CODE",
        "refund: 'five' is not of type 'integer'; usage: refund NUMBER",
        "no order 1",
        "wrong code Q510",
        "to finish, type: confirm Q510",
        "wrong code Q511",
    ]
    assert [line.error for line in printed] == [True, True, True, True, False, True]
    assert (reward.value, reward.note) == (0.0, "missing: refund of order 5481")


async def test_an_action_that_nobody_parsed_is_refused_too() -> None:
    environment = desk.Desk(refund(5481, "Q510"), 0)
    for action in (
        Action(kind="call", tool="refund", arguments={"number": "5481"}),
        Action(kind="call", tool="refund", arguments={"number": True}),
        Action(kind="call", tool="refund"),
        Action(kind="call", tool="confirm", arguments={"code": "Q510", "more": 1}),
        Action(kind="invalid", text="?"),
    ):
        said = await environment.step(action)
        assert said.error, action
        assert said.text == "usage: refund NUMBER | confirm CODE"
    await environment.close()
    assert (await environment.step(Action(kind="answer", text="x"))).error


# --- the verifier ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "difficulty"), KINDS)
async def test_the_oracle_is_worth_one_and_ends_the_episode(family: Family, difficulty: Difficulty) -> None:
    for split in SPLITS:
        for seed, task in enumerate(desk.tasks(family, split, 12, 1, difficulty)):
            lines = desk.oracle(task)
            printed, reward, _ = await played(task, lines, seed)
            assert reward.value == 1.0, (lines, reward.note)
            assert [line.done for line in printed] == [False] * (len(lines) - 1) + [True]
            assert not any(line.error for line in printed)
            for less in range(len(lines)):
                _, reward, _ = await played(task, lines[:less], seed)
                assert reward.value == 0.0


@pytest.mark.parametrize("family", get_args(Family))
async def test_the_convention_of_the_house_is_never_said(family: Family) -> None:
    """Doing what the terminal's words suggest, without the convention, earns nothing."""
    for task in desk.tasks(family, "train", 20, 2, "house"):
        plain = task.replace(data={**task.data, "difficulty": "plain"})
        naive = [line for line in desk.oracle(plain) if not line.startswith(("answer", "reorder"))]
        case = Case.model_validate(task.data)
        if family in ("price", "stock"):
            naive.append(f"answer {case.items[0].price if family == 'price' else case.items[0].shelf}")
        if family == "reorder":
            naive.insert(0, f"reorder {case.items[0].name} {task.instruction.split()[1]}")
        printed, reward, _ = await played(task, naive)
        assert reward.value == 0.0
        assert not any("answer" in line.text or "confirm" in line.text for line in printed)


async def test_missing_wrong_and_extra_deeds_fail_by_name() -> None:
    task = desk.tasks("refund", "train", 1, 0, "double")[0]
    first, second = Case.model_validate(task.data).expected.refunds
    stranger = next(n for n in (await desk.Desk(task, 0).state())["orders"] if int(n) not in (first, second))
    environment = desk.Desk(task, 0)
    code = (await environment.step(typed(environment, f"refund {stranger}"))).text.split()[-1]
    _, reward, _ = await played(task, [*desk.oracle(task)[:2], f"refund {stranger}", f"confirm {code}"])
    assert reward.parts == {"missing": 1.0, "wrong": 0.0, "extra": 1.0}
    assert reward.note == f"missing: refund of order {second}; extra: refund of order {stranger}"

    buy = desk.tasks("reorder", "train", 1, 0, "double")[0]
    name, pieces = Case.model_validate(buy.data).expected.purchases[0]
    lines = desk.oracle(buy)
    _, reward, _ = await played(buy, [f"reorder {name} {pieces + 1}", *lines[1:]])
    assert (reward.value, reward.parts["wrong"]) == (0.0, 1.0)
    assert reward.note == f"wrong: purchase of {name} ({pieces + 1}) instead of purchase of {name} ({pieces})"


async def test_everything_right_and_one_deed_more_fails() -> None:
    """An answer that is right is worth nothing beside a purchase that nobody asked for."""
    task = desk.tasks("stock", "train", 1, 0)[0]
    item = Case.model_validate(task.data).items[0]
    _, reward, _ = await played(task, [f"reorder {item.name} 6", f"confirm {item.supply}", *desk.oracle(task)])
    assert (reward.value, reward.parts) == (0.0, {"missing": 0.0, "wrong": 0.0, "extra": 1.0})
    _, right, _ = await played(task, [f"reorder {item.name} 6", *desk.oracle(task)])
    assert right.value == 1.0, "what was prepared and never confirmed is no deed"
    once = refund(5481, "Q510")
    run = Trajectory(id="t", task=once, spec="", policy="", seed=0, created=datetime.now(UTC))
    reward = await desk.verify(once, run, {"refunds": [5481, 7702]})
    assert (reward.value, reward.note) == (0.0, "extra: refund of order 7702")


async def test_no_order_is_paid_back_or_exchanged_twice() -> None:
    task = desk.tasks("exchange", "train", 1, 0, "double")[0]
    lines = desk.oracle(task)
    printed, _, _ = await played(task, [*lines[:3], lines[1], lines[2]])
    assert [line.error for line in printed[3:]] == [True, True]
    assert "already exchanged" in printed[3].text


async def test_an_exchange_moves_goods_both_ways_and_no_money() -> None:
    task = desk.tasks("exchange", "train", 1, 0)[0]
    order, (_, given) = Case.model_validate(task.data).orders[0], Case.model_validate(task.data).expected.exchanges[0]
    before = await desk.Desk(task, 0).state()
    _, _, after = await played(task, desk.oracle(task))
    moved = {name: after["shelf"][name] - pieces for name, pieces in before["shelf"].items()}
    assert {name: pieces for name, pieces in moved.items() if pieces} == {order.item: order.pieces, given: -order.pieces}
    assert after["till"] == before["till"]


async def test_a_code_counts_once() -> None:
    task = desk.tasks("reorder", "train", 1, 0, "double")[0]
    first, code, *_ = desk.oracle(task)
    printed, _, state = await played(task, [first, code, code])
    assert [line.error for line in printed] == [False, False, True]
    assert len(state["purchases"]) == 1


# --- laws -----------------------------------------------------------------------------------------------------


def lines_of(task: Task, state: dict[str, object]) -> st.SearchStrategy[list[str]]:
    """Lines from the words of this world, mostly well-formed, and some that are not."""
    case = Case.model_validate(task.data)
    known = {*words(case.items, case.orders), *state["orders"], *state["shelf"]}
    said = sorted({*known, "12", "999", "-1"})
    commands = [tool.name for tool in desk.Desk(task, 0).tools]
    line = st.builds(
        lambda name, rest: " ".join([name, *rest]), st.sampled_from(commands), st.lists(st.sampled_from(said), max_size=2)
    )
    return st.lists(st.one_of(line, st.sampled_from(desk.oracle(task)), st.text(max_size=12)), max_size=9)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), kind=st.sampled_from(KINDS), seed=st.integers(0, 50))
def test_random_actions_keep_the_laws_and_earn_only_what_they_brought_about(
    data: st.DataObject, kind: tuple[Family, Difficulty], seed: int
) -> None:
    task = desk.tasks(kind[0], "train", 1, seed, kind[1])[0]
    case = Case.model_validate(task.data)
    begun = dict(asyncio.run(desk.Desk(task, seed).state()))
    lines = data.draw(lines_of(task, begun))
    printed, reward, state = asyncio.run(played(task, lines, seed))
    for name, pieces in begun["shelf"].items():
        assert state["shelf"][name] + state["sold"][name] == pieces + begun["sold"][name]
        assert state["shelf"][name] >= 0
        assert state["sold"][name] >= 0
    kept = {number for number, status in state["orders"].items() if status != "refunded"}
    assert state["till"] <= begun["till"]
    assert (state["till"] == begun["till"]) == (len(kept) == len(begun["orders"]))
    deeds = len(state["refunds"]) + len(state["exchanges"]) + len(state["purchases"])
    carried = [line.strip() for line, said in zip(lines, printed, strict=False) if not said.error]
    confirmed = [line for line in carried if line.startswith("confirm")]
    assert deeds == len(confirmed), "nothing is done without a confirmation"
    if reward.value == 1.0:
        needed = [line for line in desk.oracle(task) if line.startswith(("confirm", "answer"))]
        assert sorted(line for line in carried if line.startswith(("confirm", "answer"))) == sorted(needed)
    else:
        assert reward.note
        assert sum(reward.parts.values()) > 0
    assert case.matters == 0 or deeds <= case.matters


def test_the_answer_is_a_tool_only_where_one_is_asked_for() -> None:
    for family in get_args(Family):
        task = desk.tasks(family, "train", 1, 0)[0]
        asked = Case.model_validate(task.data).expected.answer is not None
        assert (ANSWER in desk.Desk(task, 0).tools) == asked
        assert all(tool.effect != "world" for tool in desk.Desk(task, 0).tools)
