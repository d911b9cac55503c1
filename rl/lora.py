"""LoRA: put adapters on a model's linear layers, take their weights out and put them back; serving them is for harness.models."""

import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save
from torch import Tensor, nn

from harness.adapters import FILES, named
from harness.errors import StoreError, UsageError
from rl.recipe import Recipe

State = Mapping[str, Tensor]
"""peft's names to the adapter's weights."""


def adapted(model: nn.Module, recipe: Recipe, parent: Path | None = None) -> Any:
    """peft's model around `model`, only its adapter trainable: a fresh one, seeded by the recipe, or a copy of the parent's.

    Raises UsageError when the parent is of another rank or scaling than the recipe asks for.
    """
    config = LoraConfig(
        r=recipe.rank, lora_alpha=cast(int, recipe.alpha), target_modules="all-linear", lora_dropout=0.0, task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # peft still asks transformers by the old name.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        torch.manual_seed(recipe.seed)
        wrapped = get_peft_model(model, config)
    if parent is not None:
        told = json.loads((parent / FILES[0]).read_text(encoding="utf-8"))
        if (told["r"], float(told["lora_alpha"])) != (recipe.rank, recipe.alpha):
            has = f"rank {told['r']} and alpha {told['lora_alpha']:g}"
            raise UsageError(
                f"adapter {parent.name[:12]} has {has}, the recipe {recipe.rank} and {recipe.alpha:g}: go on with its own"
            )
        restore(wrapped, load_file(parent / FILES[1]))
    return wrapped


def state(wrapped: Any) -> dict[str, Tensor]:
    """A copy of the adapter's weights, in fp32."""
    return {name: value.detach().clone().float() for name, value in get_peft_model_state_dict(wrapped).items()}


def restore(wrapped: Any, weights: State) -> None:
    """Put weights back; raises UsageError when they are of another shape."""
    try:
        odd = set_peft_model_state_dict(wrapped, dict(weights)).unexpected_keys
    except RuntimeError as error:
        raise UsageError(f"the stored adapter does not fit this model: {str(error).splitlines()[-1].strip()}") from error
    if odd:
        raise UsageError(f"the stored adapter does not fit this model: it has no {odd[0]}")


def publish(wrapped: Any, weights: State, base: str, root: Path) -> str:
    """Write an adapter in peft's form, whole or not at all, and return its digest. `base` is its weights'."""
    config = wrapped.peft_config["default"].to_dict()
    config |= {
        "base_model_name_or_path": f"sha256:{base}", "inference_mode": True, "revision": None, "peft_version": None,
        "target_modules": sorted(config["target_modules"]),
    }  # fmt: skip
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=".making-", dir=root))
    try:
        written(making / FILES[0], json.dumps(config, indent=2, sort_keys=True, default=str).encode())
        written(making / FILES[1], save({name: value.contiguous() for name, value in weights.items()}))
        digest = named(making)
        if not (root / digest).is_dir():
            making.rename(root / digest)
            settled(root)
        return digest
    finally:
        shutil.rmtree(making, ignore_errors=True)


def written(path: Path, data: bytes) -> str:
    """Write a file through to the disk; its sha256. Raises StoreError where it does not fit."""
    try:
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(
            f"{path}: {len(data):,} bytes could not be written ({error.strerror or error}); nothing half-written is ever read."
            " Free some space and run the same command again: it goes on from the last whole checkpoint"
        ) from error
    return hashlib.sha256(data).hexdigest()


def settled(folder: Path) -> None:
    """A rename in this folder survives the death of the machine when this returns."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
