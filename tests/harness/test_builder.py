"""AgentBuilder: an agent of one's own functions in one expression; each call leaves the builder before it as it was."""

import pytest

from harness.approval import Waiting, answer
from harness.builder import AgentBuilder
from harness.checkpoint import memory
from harness.errors import UsageError
from harness.hint import Hint, Recalled
from harness.message import Call, Completion
from harness.models.scripted import Output, Scripted
from harness.plain import by_effect
from harness.spec import HarnessSpec
from harness.task import Task
from harness.tool import describe, tool


@tool(effect="read")
def price(item: str) -> str:
    """What an item costs."""
    return f"{item} costs 24"


def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


def script(name: str, arguments: str) -> list[Output]:
    return [Completion(calls=(Call(id="c", tool=name, arguments=arguments),)), "24"]


async def test_functions_a_verifier_and_a_model_are_an_agent() -> None:
    model = Scripted(script("price", '{"item": "cup"}'))
    built = (
        AgentBuilder().model(model, "scripted/x", temperature=0).tools(price).system("Be brief.").limits(steps=3)
        .verify(lambda task, run, state: run.answer == task.data["wanted"]).build()
    )  # fmt: skip
    run = await built.run("What does a cup cost?", data={"wanted": "24"}, seed=5)
    assert (run.success, run.answer, run.seed) == (True, "24", 5)
    assert run.state == {"calls": [["price", {"item": "cup"}, "cup costs 24"]]}
    assert model.prompts[0].startswith("Be brief.")
    assert (built.spec.policy.model, built.spec.policy.temperature, built.spec.limits.steps) == ("scripted/x", 0, 3)
    assert built.spec.limits.seconds == HarnessSpec(policy=built.spec.policy).limits.seconds
    assert run.spec == built.spec.digest


async def test_world_effects_are_refused_allowed_or_asked_for() -> None:
    def builder() -> AgentBuilder:
        return AgentBuilder().model(Scripted(script("pay", '{"euros": 3}')), "scripted/x").tools(pay)

    assert (await builder().build().run("Pay.")).steps[0].observation.error
    assert (await builder().tools(pay="episode").build().run("Pay.")).steps[0].observation.text == "paid 3"
    permit = by_effect([describe(pay, effect="world")], world="ask")
    built = builder().permit(permit).checkpointer(memory()).build()
    with pytest.raises(Waiting) as waiting:
        await built.run("Pay.", thread="t")
    run = await built.resume("t", answer(waiting.value.approval, "approve"))
    assert run.steps[0].observation.text == "paid 3"


async def test_recall_is_asked_and_a_builder_is_not_changed_by_the_next() -> None:
    async def recall(task: Task, spec: HarnessSpec) -> Recalled:
        return Recalled(hints=(Hint(kind="skill", id="s", name="prices", text="Ask for the price."),))

    model = Scripted(["24", "24"])
    plain = AgentBuilder().model(model, "scripted/x").tools(price)
    await plain.recall(recall).build().run("?")
    await plain.build().run("?")
    assert ["Ask for the price." in prompt for prompt in model.prompts] == [True, False]


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UsageError, match="needs a model"):
        AgentBuilder().tools(price).build()
    with pytest.raises(UsageError, match="no annotation"):
        AgentBuilder().model(Scripted([]), "scripted/x").tools(lambda x: x).build()
