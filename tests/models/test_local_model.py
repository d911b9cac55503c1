"""LocalModel over the embedded weights: ids stay ids, outputs end where they should, and conversion is whole or absent."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ContextOverflow, UsageError
from harness.message import Message, Tokens
from harness.policy import Policy, Sampling
from tests.models.conftest import NAME

COLD = Policy(model=f"local/{NAME}", temperature=0)


def plain(**given: Any) -> Sampling:
    return Sampling(**{"template": False, "max_tokens": 6, **given})


async def test_ids_that_were_produced_are_never_encoded_again(local: Any) -> None:
    whole = local.tokenizer.encode("hello", add_special_tokens=False)
    letters = tuple(local.tokenizer.encode(c, add_special_tokens=False)[0] for c in "hello")
    assert local.tokenizer.decode(letters) == "hello"
    assert len(whole) < len(letters)
    kept = Tokens(ids=letters, logprobs=(0.0,) * 5, mask=(True,) * 5)
    said = [Message(role="user", content="I say: "), Message(role="assistant", content="hello", tokens=kept)]
    spelt = await local.complete(COLD, said, [], plain())
    joined = await local.complete(COLD, [said[0], Message(role="assistant", content="hello")], [], plain())
    assert spelt.usage.prompt_tokens - joined.usage.prompt_tokens == len(letters) - len(whole)
    talk = [*said, Message(role="user", content="Again.")]
    templated = await local.complete(COLD, talk, [], Sampling(max_tokens=1))
    again = await local.complete(COLD, [talk[0], talk[1].replace(tokens=Tokens()), talk[2]], [], Sampling(max_tokens=1))
    assert templated.usage.prompt_tokens - again.usage.prompt_tokens == len(letters) - len(whole)


async def test_the_chat_template_is_the_models_own(local: Any) -> None:
    talk = [Message(role="system", content="Be brief."), Message(role="user", content="What is the capital of France?")]
    done = await local.complete(COLD, talk, [], Sampling(max_tokens=40))
    chat = [{"role": m.role, "content": m.content} for m in talk]
    text = local.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert done.usage.prompt_tokens == len(local.tokenizer.encode(text, add_special_tokens=False))
    assert "Paris" in done.text
    assert done.finish == "stop"
    assert done.tokens.ids[-1] == local.tokenizer.eos_token_id


async def test_a_stop_string_ends_an_output_and_max_tokens_cuts_it(local: Any) -> None:
    count = [Message(role="user", content="1, 2, 3, 4, 5, 6,")]
    stopped = await local.complete(COLD, count, [], plain(stop=(" 9",), max_tokens=30))
    assert stopped.text == " 7, 8,"
    assert stopped.finish == "stop"
    cut = await local.complete(COLD, count, [], plain(max_tokens=3))
    assert cut.finish == "length"
    assert len(cut.tokens.ids) == cut.usage.completion_tokens == 3
    assert cut.tokens.mask == (True,) * 3
    assert cut.tokens.version == local.version


async def test_a_prefix_opens_the_text_and_is_masked(local: Any) -> None:
    count = [Message(role="user", content="1, 2, 3, 4, 5, 6,")]
    done = await local.complete(COLD, count, [], plain(prefix=" 7, 8,", max_tokens=2))
    begun = tuple(local.tokenizer.encode(" 7, 8,", add_special_tokens=False))
    assert done.text.startswith(" 7, 8, 9")
    assert done.tokens.ids[: len(begun)] == begun
    assert done.tokens.mask == (False,) * len(begun) + (True,) * 2
    assert done.usage.completion_tokens == 2
    scored = await local.score(COLD, count, " 7, 8,")
    assert list(scored.logprobs) == pytest.approx(list(done.tokens.logprobs[: len(begun)]), abs=1e-4)


async def test_a_score_is_what_was_said_when_it_was_drawn(local: Any) -> None:
    system = Message(role="system", content="The old clerk wrote:")
    done = await local.complete(COLD, [system], [], plain())
    scored = await local.score(COLD, [system], done.text)
    assert scored.ids == done.tokens.ids
    assert list(scored.logprobs) == pytest.approx(list(done.tokens.logprobs), abs=1e-4)
    assert not any(scored.mask)
    assert (await local.score(COLD, [system], "")).ids == ()


async def test_nothing_at_all_is_a_prompt_too(local: Any) -> None:
    assert len((await local.complete(COLD, [], [], plain(max_tokens=2))).tokens.ids) == 2


async def test_a_cancelled_call_leaves_the_model_usable(local: Any) -> None:
    said = [Message(role="user", content="Once")]
    call = asyncio.ensure_future(local.complete(COLD, said, [], plain(max_tokens=400)))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await local.complete(COLD, said, [], plain())).tokens.ids


async def test_what_it_cannot_do_is_said(local: Any) -> None:
    said = [Message(role="user", content="word " * 9000)]
    with pytest.raises(ContextOverflow, match="the model holds 8192"):
        await local.complete(COLD, said, [], plain())
    with pytest.raises(UsageError, match="the policy asks for openai/x"):
        await local.complete(Policy(model="openai/x"), [], [], plain())
    with pytest.raises(UsageError, match="adapter a is not in"):
        await local.complete(Policy(model=COLD.model, adapter="a"), [], [], plain())
    done = await local.complete(COLD, [Message(role="user", content="1")], [], plain(max_tokens=1, json_schema={}))
    assert done.unhonoured == ("json_schema",)


def test_a_folder_without_a_model_is_named(local: Any, tmp_path: Path) -> None:
    from harness.models.local.load import load

    with pytest.raises(UsageError, match="holds no config"):
        load(str(tmp_path), tmp_path, "sdpa")


@pytest.mark.slow
def test_two_processes_convert_into_one_fresh_folder_beside_a_half_made_one(local: Any, tmp_path: Path) -> None:
    half = tmp_path / f".{NAME}-half"
    half.mkdir()
    (half / "config.json").write_text("{}")
    code = "import sys, pathlib; from harness.models.local.load import converted; print(converted(pathlib.Path(sys.argv[1])))"
    both = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = {process.communicate()[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(folders) == 1
    made = Path(folders.pop())
    assert made.name.startswith(NAME)
    assert (made / "weights.sha256").read_text() == local.version
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([half.name, made.name])
