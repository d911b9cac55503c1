"""The contract of every Model that needs no network: text and usage, the seed decides, errors are typed; and of every Scorer."""

import asyncio
from collections.abc import Callable

import pytest

from harness.errors import ModelUnavailable
from harness.message import Completion, Message, Tokens
from harness.models.scripted import Scripted
from harness.policy import Policy, Sampling
from harness.seams import Model, Scorer
from tests.harness.rigs import LOOK

POLICY = Policy(model="scripted/x")
PROMPT = (Message(role="system", content="Terminal."), Message(role="user", content="\nRequest: look.\n>"))


def by_seed() -> Scripted:
    return Scripted(lambda messages, tools, sampling: f" look {sampling.seed}")


@pytest.fixture(params=[by_seed])
def make(request: pytest.FixtureRequest) -> Callable[[], Model]:
    made: Callable[[], Model] = request.param
    return made


async def test_an_output_has_words_a_finish_and_what_it_cost(make: Callable[[], Model]) -> None:
    output = await make().complete(POLICY, PROMPT, (LOOK,), Sampling(seed=3))
    assert isinstance(output, Completion)
    assert output.text
    assert (output.finish, output.usage.calls) == ("stop", 1)
    assert output.usage.prompt_tokens > 0
    assert output.model
    # What the words mean is for the parser: a model fills in neither.
    assert (output.thought, output.actions) == ("", ())


async def test_the_same_seed_says_the_same_and_company_does_not_matter(make: Callable[[], Model]) -> None:
    alone = [await make().complete(POLICY, PROMPT, (), Sampling(seed=seed)) for seed in range(4)]
    model = make()
    together = await asyncio.gather(*(model.complete(POLICY, PROMPT, (), Sampling(seed=seed)) for seed in range(4)))
    assert [output.text for output in together] == [output.text for output in alone]


async def test_a_score_has_one_number_for_each_token_of_the_text_alone() -> None:
    scorer: Scorer = Scripted([], scores={"look 3": -0.5})
    tokens = await scorer.score(POLICY, PROMPT, " look 3")
    assert isinstance(tokens, Tokens)
    assert len(tokens.ids) == len(tokens.logprobs) == len(tokens.mask) == 2
    assert tokens.logprobs == (-0.5, -0.5)
    assert not any(tokens.mask)


async def test_the_script_is_said_in_order_raises_what_it_holds_and_ends() -> None:
    model = Scripted(["one", ModelUnavailable("503"), Completion(text="three", finish="length")])
    assert (await model.complete(POLICY, PROMPT, (), Sampling())).text == "one"
    with pytest.raises(ModelUnavailable, match="503"):
        await model.complete(POLICY, PROMPT, (), Sampling())
    assert (await model.complete(POLICY, PROMPT, (), Sampling())).finish == "length"
    with pytest.raises(LookupError, match="3 outputs, this is call 4"):
        await model.complete(POLICY, PROMPT, (), Sampling())
    assert model.calls == 4
    assert model.prompts[0] == "Terminal.\nRequest: look.\n>"


async def test_a_gate_holds_the_answer_back() -> None:
    gate = asyncio.Event()
    task = asyncio.create_task(Scripted(["one"], gate=gate).complete(POLICY, PROMPT, (), Sampling()))
    await asyncio.sleep(0)
    assert not task.done()
    gate.set()
    assert (await task).text == "one"
