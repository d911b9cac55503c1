"""The loop: both dialects, failures as data, one action a visit, limits, cancellation; with the scripted model."""

import asyncio
from collections.abc import Sequence
from typing import Any, TypedDict, cast

import pytest
from langgraph.graph import END, START, StateGraph

from harness.agent import CUT
from harness.correction import Correction
from harness.episode import Brief
from harness.errors import ContextOverflow, EnvironmentBroken, ModelUnavailable, Refused, UsageError
from harness.message import Call, Completion, Message
from harness.models.scripted import Scripted
from harness.plain import by_effect
from harness.policy import Sampling
from harness.reward import Reward
from harness.seams import Ask
from harness.task import Task
from harness.tool import Tool
from harness.trajectory import Step, Trajectory
from tests.harness.rigs import ADD, LOOK, NATIVE, PAY, TASK, TERMINAL, Counter, Rig, calls, limited


async def sum_is_two(task: Task, trajectory: Trajectory, state: Any) -> Reward:
    return Reward(value=float(state["sum"] == 2), verifier="two")


async def test_native_tool_calls_until_an_answer() -> None:
    rig = Rig([calls(("add", 1)), calls(("add", 1)), "two"], verify=sum_is_two)
    run = await rig.agent.run(TASK, NATIVE, seed=0)
    assert (run.answer, run.stop, run.success, run.error) == ("two", "answer", True, None)
    assert [step.observation.text for step in run.steps] == ["add 1: sum 1", "add 1: sum 2", ""]
    assert [step.turn for step in run.steps] == [0, 1, 2]
    assert run.state == {"sum": 2, "paid": []}
    assert run.usage.calls == rig.model.calls == 3
    assert run.opening.text == "ready"
    assert rig.closed


async def test_terminal_commands_and_the_answer_as_a_command() -> None:
    rig = Rig([" add 2", " answer it is two"], verify=sum_is_two)
    run = await rig.agent.run(TASK, TERMINAL, seed=0)
    assert (run.answer, run.success) == ("it is two", True)
    assert rig.model.prompts[1] == rig.model.prompts[0] + " add 2\nadd 2: sum 2\n>"


async def test_an_invalid_action_is_answered_and_not_done() -> None:
    rig = Rig([" fly 2", " add x", " add 2", " answer 2"])
    run = await rig.agent.run(TASK, TERMINAL, seed=0)
    assert [step.observation.error for step in run.steps] == [True, True, False, False]
    assert run.steps[0].observation.text.startswith("usage: look N | add N")
    assert rig.worlds[0].done == ["add 2"]


@pytest.mark.parametrize("text", [" add 2", " answer 2"])
async def test_a_line_that_was_cut_is_never_acted_on(text: str) -> None:
    rig = Rig([Completion(text=text, finish="length"), " answer done"])
    run = await rig.agent.run(TASK, TERMINAL, seed=0)
    assert run.steps[0].action.kind == "invalid"
    assert (run.answer, rig.worlds[0].done) == ("done", [])


@pytest.mark.parametrize(
    "half",
    [
        Completion(calls=(Call(id="c", tool="add", arguments='{"n": 2'),), finish="length"),
        Completion(text='{"name": "add", "arguments": {"n": 2', finish="length"),
        Completion(text='<tool_call>{"name": "add", "arguments": {"n"', finish="length"),
    ],
)
async def test_half_a_call_is_neither_a_call_nor_an_answer(half: Completion) -> None:
    rig = Rig([half, "done"])
    run = await rig.agent.run(TASK, NATIVE, seed=0)
    assert (run.steps[0].action.kind, run.answer, rig.worlds[0].done) == ("invalid", "done", [])


async def test_one_repair_then_unparsed_which_is_the_agents_failure() -> None:
    repaired = Rig(["", "two"])
    assert (await repaired.agent.run(TASK, NATIVE, seed=0)).answer == "two"
    assert "neither a tool call" in repaired.model.prompts[1]
    rig = Rig(["", "  ", "never asked"], verify=sum_is_two)
    run = await rig.agent.run(TASK, NATIVE, seed=0)
    assert run.error is not None
    assert (run.error.wall, run.error.infrastructure, run.evidence, run.reward) == ("parse", False, 0.0, None)
    assert run.usage.calls == rig.model.calls == 2
    assert rig.closed


@pytest.mark.parametrize(
    ("raised", "wall", "evidence"),
    [
        (ContextOverflow("too long"), "context", 0.0),
        (Refused("no"), "refusal", 0.0),
        (ModelUnavailable("503"), "model", None),
        (RuntimeError("a bug"), "infrastructure", None),
        (TimeoutError("slow"), "infrastructure", None),
    ],
)
async def test_a_failing_model_is_data(raised: Exception, wall: str, evidence: float | None) -> None:
    rig = Rig([calls(("add", 1)), raised], verify=sum_is_two)
    run = await rig.agent.run(TASK, NATIVE, seed=0)
    assert run.error is not None
    assert (run.error.wall, run.evidence, run.stop, len(run.steps)) == (wall, evidence, "error", 1)
    assert str(raised) in run.error.message
    assert rig.closed


async def test_a_wrong_request_raises() -> None:
    with pytest.raises(UsageError, match="no key"):
        await Rig([UsageError("no key")]).agent.run(TASK, NATIVE, seed=0)
    with pytest.raises(UsageError, match="thinking 'deep'; this agent has plain"):
        await Rig([]).agent.run(TASK, NATIVE.replace(thinking="deep"), seed=0)


async def test_a_broken_world_is_infrastructure_and_a_broken_verifier_too() -> None:
    rig = Rig([calls(("add", 7))], fails={7: EnvironmentBroken("gone")})
    run = await rig.agent.run(TASK, NATIVE, seed=0)
    assert run.error is not None
    assert (run.error.wall, run.evidence) == ("environment", None)

    async def broken(task: Task, trajectory: Trajectory, state: Any) -> Reward:
        raise ZeroDivisionError("oops")

    run = await Rig(["two"], verify=broken).agent.run(TASK, NATIVE, seed=0)
    assert run.error is not None
    assert (run.error.wall, run.answer, run.evidence) == ("verifier", "two", None)


async def guard(task: Task, steps: Sequence[Step], completion: Completion) -> Correction:
    wrong = completion.thought.startswith("pay")
    return Correction(thought="add one instead", reason="never pay") if wrong else Correction()


async def test_a_corrected_thought_makes_the_action_again_once_and_the_raw_thought_is_kept() -> None:
    prefixes: list[str] = []
    said = iter([calls(("pay", 1), text="pay it"), calls(("add", 1), text="pay, still"), "done"])

    def writer(messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling) -> Completion | str:
        prefixes.append(sampling.prefix)
        return next(said)

    rig = Rig(writer, guards={"none": guard})
    run = await rig.agent.run(TASK, NATIVE, seed=0)
    first = run.steps[0]
    assert prefixes == ["", "add one instead", ""]
    assert (first.raw_thought, first.thought, first.action.tool) == ("pay it", "add one instead", "add")
    assert first.correction is not None
    assert (first.correction.reason, first.usage.calls) == ("never pay", 2)
    assert (run.steps[1].raw_thought, run.steps[1].correction) == ("", None)


async def test_several_actions_of_one_output_run_one_a_visit_and_the_record_lies_on_the_first() -> None:
    rig = Rig([calls(("add", 1), ("look", 2), ("add", 3), text="all three"), "done"])
    visits = []
    brief = Brief(run="r", task=TASK, spec=NATIVE, seed=0, created=rig.agent.clock())
    async for update in rig.agent.graph.astream({"brief": brief}, stream_mode="updates"):
        visits += [(name, len((change or {}).get("steps", []))) for name, change in update.items()]
    assert visits == [("recall", 0), ("decide", 0), ("act", 1), ("act", 1), ("act", 1), ("decide", 0), ("act", 1), ("score", 0)]
    assert rig.worlds[0].done == ["add 1", "look 2", "add 3"]
    assert rig.closed
    run = await Rig([calls(("add", 1), ("look", 2), text="both"), "done"]).agent.run(TASK, NATIVE, seed=0)
    assert [(s.turn, s.thought, s.usage.calls) for s in run.steps] == [(0, "both", 1), (0, "", 0), (1, "", 1)]


@pytest.mark.parametrize(("limits", "steps"), [({"steps": 2}, 2), ({"tokens": 1}, 1), ({"cost": 1e-9}, 1)])
async def test_limits_end_an_episode_which_is_still_judged(limits: dict[str, Any], steps: int) -> None:
    again = calls(("add", 1))
    costly = again.replace(usage=again.usage.replace(calls=1, prompt_tokens=1, cost=1e-6))
    run = await Rig(lambda *given: costly, verify=sum_is_two).agent.run(TASK, limited(**limits), seed=0)
    assert (run.stop, len(run.steps), run.error) == ("limit", steps, None)
    assert run.reward is not None
    assert run.evidence == float(steps == 2)


async def test_time_that_runs_out_in_the_middle_of_an_action_is_recorded() -> None:
    class Slow(Counter):
        async def step(self, action: Any) -> Any:
            await asyncio.Event().wait()

    rig = Rig([calls(("add", 1))])
    rig.agent = type(rig.agent)(rig.model, lambda task, seed: Slow([]))
    run = await rig.agent.run(TASK, limited(seconds=0.2), seed=0)
    assert (run.stop, run.error) == ("limit", None)
    assert [step.observation.text for step in run.steps] == [CUT]


async def test_a_cancelled_call_closes_its_world() -> None:
    gate = asyncio.Event()
    rig = Rig([])
    rig.agent = type(rig.agent)(Scripted(["never"], gate=gate), rig.agent.open)
    task = asyncio.create_task(rig.agent.run(TASK, NATIVE, seed=0))
    while not rig.worlds:
        await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(rig.worlds) == 1
    assert rig.closed


async def test_world_effects_are_refused_unless_allowed() -> None:
    rig = Rig([calls(("pay", 5)), "done"])
    run = await rig.agent.run(TASK, NATIVE, seed=0)
    assert (rig.paid, run.steps[0].observation.error) == ([], True)
    assert "pay acts on the world" in run.steps[0].observation.text
    allowed = Rig([calls(("pay", 5)), "done"], permit=by_effect((LOOK, ADD, PAY), allowed=("pay",)))
    await allowed.agent.run(TASK, NATIVE, seed=0)
    assert allowed.paid == [5]


async def test_every_turn_has_a_seed_of_its_own_and_the_same_one_again() -> None:
    async def seeds(seed: int) -> list[int]:
        found: list[int] = []

        def writer(messages: Sequence[Message], tools: Sequence[Tool], sampling: Sampling) -> Completion | str:
            found.append(sampling.seed)
            return calls(("add", 1)) if len(found) < 4 else "done"

        await Rig(writer).agent.run(TASK, NATIVE, seed=seed)
        return found

    first = await seeds(1)
    assert len(set(first)) == 4
    assert await seeds(1) == first
    assert not set(first) & set(await seeds(2))


async def test_thinking_that_comes_to_nothing_is_unparsed() -> None:
    async def nothing(task: Task, messages: Sequence[Message], ask: Ask) -> Completion:
        return Completion(text="hm")

    run = await Rig([], thinking={"plain": nothing}).agent.run(TASK, NATIVE, seed=0)
    assert run.error is not None
    assert run.error.wall == "parse"


class Parent(TypedDict, total=False):
    brief: Brief
    trajectory: Trajectory
    said: str


async def test_the_graph_is_a_node_of_another_graph() -> None:
    rig = Rig([calls(("add", 2)), "two"], verify=sum_is_two)
    graph = StateGraph(Parent)
    graph.add_node("agent", rig.agent.graph)
    graph.add_node("tell", lambda state: {"said": f"it said {state['trajectory'].answer}"})
    graph.add_edge(START, "agent")
    graph.add_edge("agent", "tell")
    graph.add_edge("tell", END)
    brief = Brief(run="inner", task=TASK, spec=NATIVE, seed=0, created=rig.agent.clock())
    final = await graph.compile().ainvoke(cast(Any, {"brief": brief}))
    assert final["said"] == "it said two"
    assert final["trajectory"].success
    assert rig.closed


async def test_the_first_prompt_costs_no_call_and_closes_its_world() -> None:
    rig = Rig(["two"])
    prompt = await rig.agent.first_prompt(TASK, TERMINAL)
    assert rig.model.calls == 0
    assert rig.closed
    await rig.agent.run(TASK, TERMINAL, seed=0)
    assert "".join(str(m.content) for m in prompt) == rig.model.prompts[0]
