"""Adapters on the local model: each request has its own or none, as peft computes it; a damaged or foreign one is named."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.adapters import FILES, Adapters, named
from harness.errors import UsageError
from harness.message import Message
from harness.policy import Policy, Sampling
from tests.models.conftest import NAME

COLD = Policy(model=f"local/{NAME}", temperature=0.0)
SAID = [Message(role="system", content="A short list of colours.\n"), Message(role="user", content="red, green,")]


def plain(**given: Any) -> Sampling:
    return Sampling(template=False, **{"max_tokens": 8, **given})


async def test_an_adapter_is_what_peft_computes(local: Any, tuned: tuple[str, str, Any]) -> None:
    import torch

    first, _, wrapped = tuned
    bare, got = await asyncio.gather(*(local.complete(COLD.replace(adapter=a), SAID, [], plain()) for a in ("", first)))
    prompt = local.ids(SAID, template=False)[0]
    with torch.no_grad():
        logits = wrapped(input_ids=torch.tensor([[*prompt, *got.tokens.ids]])).logits[0].log_softmax(-1)
    expected = [float(logits[len(prompt) + place - 1, token]) for place, token in enumerate(got.tokens.ids)]
    assert list(got.tokens.logprobs) == pytest.approx(expected, abs=2e-4)
    assert [int(logits[len(prompt) + place - 1].argmax()) for place in range(len(got.tokens.ids))] == list(got.tokens.ids)
    assert bare.tokens.ids != got.tokens.ids
    assert (bare.tokens.version, got.tokens.version) == (local.version, f"{local.version}@{first}")


async def test_a_batch_of_many_adapters_answers_each_as_alone(local: Any, tuned: tuple[str, str, Any]) -> None:
    asked = [COLD.replace(adapter=adapter) for adapter in ("", *tuned[:2])]
    before = await local.complete(asked[0], SAID, [], plain())
    alone = [await local.complete(policy, SAID, [], plain()) for policy in asked]
    together = await asyncio.gather(*(local.complete(policy, SAID, [], plain()) for policy in asked * 3))
    assert [c.tokens.ids for c in together] == [c.tokens.ids for c in alone] * 3
    for done, single in zip(together, alone * 3, strict=True):
        assert list(done.tokens.logprobs) == pytest.approx(single.tokens.logprobs, abs=2e-4)
    assert before.tokens == alone[0].tokens
    assert len({c.tokens.ids for c in alone}) == 3


async def test_scores_are_the_adapters_own(local: Any, tuned: tuple[str, str, Any]) -> None:
    bare, with_adapter = [await local.score(COLD.replace(adapter=a), SAID, " blue") for a in ("", tuned[0])]
    assert bare.logprobs != with_adapter.logprobs
    assert with_adapter.version.endswith(f"@{tuned[0]}")


@pytest.mark.parametrize(
    ("file", "kept", "said"),
    [(FILES[1], -100, "cut short or changed"), (FILES[1], None, f"lacks {FILES[1]}"), (FILES[0], 9, "cut")],
)
async def test_a_damaged_adapter_is_named(
    adapters: Path, tuned: tuple[str, str, Any], tmp_path: Path, file: str, kept: int | None, said: str
) -> None:
    path = shutil.copytree(adapters / tuned[0], tmp_path / tuned[0]) / file
    whole = path.read_bytes()
    path.unlink()
    if kept is not None:
        path.write_bytes(whole[:kept])
    with pytest.raises(UsageError, match=said):
        Adapters(tmp_path).folder(tuned[0])


@pytest.mark.parametrize(
    ("edit", "said"), [({"use_dora": True}, "use_dora True"), ({"peft_type": "IA3"}, "IA3"), ({"bias": "all"}, "bias 'all'")]
)
async def test_what_is_no_plain_lora_is_refused(
    local: Any, adapters: Path, tuned: tuple[str, str, Any], edit: dict[str, object], said: str
) -> None:
    odd = edited(adapters, tuned[1], edit)
    with pytest.raises(UsageError, match=said):
        await local.complete(COLD.replace(adapter=odd), SAID, [], plain())


async def test_another_models_adapter_is_refused(local: Any, adapters: Path) -> None:
    import torch
    from safetensors.torch import save_file

    made = adapters / "made"
    made.mkdir()
    key = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    save_file({key.format("A"): torch.zeros(4, 99), key.format("B"): torch.zeros(77, 4)}, made / FILES[1])
    (made / FILES[0]).write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8}))
    digest = named(made)
    made.rename(adapters / digest)
    with pytest.raises(UsageError, match=r"of another model: its layers\.0\.self_attn\.q_proj \[77, 99\]"):
        await local.complete(COLD.replace(adapter=digest), SAID, [], plain())


def edited(adapters: Path, digest: str, edit: dict[str, object]) -> str:
    """A copy of an adapter whose config says something else, under the digest that it then has."""
    copy = adapters / "edited"
    shutil.copytree(adapters / digest, copy)
    config = json.loads((copy / FILES[0]).read_text())
    (copy / FILES[0]).write_text(json.dumps({**config, **edit}))
    name = named(copy)
    copy.rename(adapters / name)
    return name
