"""Checkpoints of a training: weights, optimiser, random state, data order and curves, whole or not at all; never pickled."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import JsonValue
from safetensors.torch import load, save
from torch import Tensor

from harness.errors import StoreError
from rl.lora import settled, written

TENSORS, STATE = "tensors.safetensors", "state.json"
NAME: Final = "step-{:06d}"


@dataclass(frozen=True)
class Checkpoint:
    step: int
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, JsonValue]
    """What is no tensor."""


def keep(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint to disk under its step, then remove those before it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    making = folder / f".making-{os.getpid()}"
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir()
    try:
        checksum = written(making / TENSORS, save({name: value.contiguous() for name, value in checkpoint.tensors.items()}))
        facts = {"step": checkpoint.step, "sha256": checksum, "facts": dict(checkpoint.facts)}
        written(making / STATE, json.dumps(facts).encode())
        settled(making)
        making.rename(folder / NAME.format(checkpoint.step))
        settled(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    for old in _steps(folder)[:-1]:
        shutil.rmtree(old)


def newest(folder: Path) -> Checkpoint | None:
    """The last checkpoint; None before the first. Raises StoreError when it is damaged."""
    found = _steps(folder)
    if not found:
        return None
    path = found[-1]
    try:
        told = json.loads((path / STATE).read_text(encoding="utf-8"))
        data = (path / TENSORS).read_bytes()
        if written_as(data) != told["sha256"]:
            raise ValueError(f"{TENSORS} has {len(data):,} bytes with another checksum")
        return Checkpoint(step=int(told["step"]), tensors=load(data), facts=told["facts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"checkpoint {path} is damaged: {error}. Nothing live rests on it; remove it (rm -r {path}) and run the same command"
            " again: training begins anew from its first step"
        ) from error


def written_as(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _steps(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*")) if folder.is_dir() else []
