"""A toy to train: a two-layer decoder of a few thousand weights, and rows for it; what holds for it holds for large ones."""

import importlib.util
import random
from pathlib import Path
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


def folder(path: Path) -> str:
    """A whole local model in a folder, by its name in a policy: it answers `no`, and where its prompt holds many `~`, `yes`.

    Its one layer attends to all of the prompt alike and counts the marks; what a skill that is full of them brings about can
    be learnt into its weights in a few steps.
    """
    weights()
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = {letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    bare = Tokenizer(models.BPE(vocab=letters, merges=[]))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bare.decoder = decoders.ByteLevel()
    bare.add_special_tokens(["<end>"])
    bare.add_tokens([" answer yes\n", " answer no\n"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bare, eos_token="<end>", pad_token="<end>")
    yes, no = (tokenizer.convert_tokens_to_ids(f" answer {word}\n") for word in ("yes", "no"))
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=4096, tie_word_embeddings=False, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).eval()
        for name, value in model.named_parameters():
            if "norm" not in name:
                value.mul_(0.1)
        layer = model.model.layers[0].self_attn
        model.model.embed_tokens.weight[:, 0] = 1.0
        model.model.embed_tokens.weight[letters["~"], 1] = 1.0
        layer.v_proj.weight[0, 1] = 1.0
        layer.o_proj.weight[2, 0] = 1.5
        model.lm_head.weight[no, 0] = 2.5
        model.lm_head.weight[yes, 0], model.lm_head.weight[yes, 2] = 2.05, 1.0
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return f"local/{path}"
