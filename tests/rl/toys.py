"""A toy to train: a two-layer decoder of a few thousand weights, and rows for it; what holds for it holds for large ones."""

import importlib.util
import random
from typing import Any

import pytest

from rl.dataset import Row

IDS = 48


def rows(n: int, seed: int = 0) -> list[Row]:
    """Sequences that end in a repetition of their first ids: something that can be learnt."""
    rng = random.Random(seed)
    found = []
    for number in range(n):
        prompt = [rng.randrange(IDS) for _ in range(rng.randrange(3, 9))]
        answer = prompt[:3]
        found.append(
            Row(ids=(*prompt, *answer), mask=(*[False] * len(prompt), *[True] * len(answer)), run=f"run {number}")
        )  # fmt: skip
    return found


def weights(seed: int = 0) -> Any:
    """Fresh weights of the toy, always the same; skips the test where torch, transformers or peft is missing."""
    missing = [part for part in ("torch", "transformers", "peft") if importlib.util.find_spec(part) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from harness.models.local.load import Weights

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=IDS, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=64, initializer_range=0.3,
        )  # fmt: skip
        model = LlamaForCausalLM(config).eval()
    return Weights(model, None, f"toy {seed}")
