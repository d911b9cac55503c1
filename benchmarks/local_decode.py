"""The local engine beside transformers' `generate` on episodes like the demo's: seconds an episode, as ratios in one run.

An episode is a shared system prompt of 40 ids and four turns, each of 8 new prompt ids and 8 written ones, at temperature
0.7. `generate` gets 16 whole prompts a turn, as a loop without an engine would. Nothing is asserted. Both sides use
`--threads` (default: what torch takes, a thread a core; with OMP_NUM_THREADS=1, one); beside other work on the same
cores only the ratios mean something. Run from the repository: `python -m benchmarks.local_decode [--json] [--threads 2]`.
"""

import argparse
import json
import random
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from harness.models.local.engine import Engine, Request
from harness.models.local.load import EMBEDDED, converted, load
from harness.models.local.memory import ATTENTION

MODELS = Path.home() / ".cache" / "assay" / "models"
SYSTEM, TURNS, ASKED, WRITTEN, BATCH = 40, 4, 8, 8, 16


def ids(draw: random.Random, count: int) -> tuple[int, ...]:
    return tuple(draw.randrange(100, 40_000) for _ in range(count))


def episode(engine: Engine, system: tuple[int, ...], seed: int) -> None:
    draw, prompt = random.Random(seed), system
    for turn in range(TURNS):
        prompt += ids(draw, ASKED)
        request = Request(prompt, shared=len(system), max_new=WRITTEN, temperature=0.7, seed=seed * TURNS + turn)
        prompt += engine.submit(request).result().ids


def ours(weights: Any, batch: int, episodes: int) -> float:
    """Seconds an episode with `batch` of them at a time."""
    engine = Engine(weights, slots=batch, tokens=512 * batch)
    begun = time.perf_counter()
    with ThreadPoolExecutor(batch) as pool:
        list(pool.map(lambda seed: episode(engine, ids(random.Random(0), SYSTEM), seed), range(1, episodes + 1)))
    taken = time.perf_counter() - begun
    engine.close()
    return taken / episodes


def theirs(model: Any) -> float:
    """Seconds an episode with transformers' `generate`, BATCH prompts a turn."""
    draw = random.Random(0)
    prompts = torch.tensor([ids(draw, SYSTEM)] * BATCH)
    begun = time.perf_counter()
    for _ in range(TURNS):
        prompts = torch.cat([prompts, torch.tensor([ids(draw, ASKED) for _ in range(BATCH)])], 1)
        prompts = model.generate(
            prompts, attention_mask=torch.ones_like(prompts), do_sample=True, temperature=0.7, top_k=0,
            min_new_tokens=WRITTEN, max_new_tokens=WRITTEN, pad_token_id=2,
        )  # fmt: skip
    return (time.perf_counter() - begun) / BATCH


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 32, 64])
    parser.add_argument("--threads", type=int, help="torch's threads, on both sides")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    weights = load(EMBEDDED, MODELS, ATTENTION)
    model: Any = AutoModelForCausalLM.from_pretrained(converted(MODELS), dtype=torch.float32).eval()
    base = theirs(model)
    found = {batch: ours(weights, batch, max(batch, 2)) for batch in chosen.batches}
    # Again, so that a change of load between the two sides shows.
    repeated = theirs(model)
    result = {
        "threads": torch.get_num_threads(),
        f"generate, batch {BATCH}: seconds an episode, before and after": [base, repeated],
        "engine": [{"batch": b, "seconds an episode": s, "times as fast": (base + repeated) / 2 / s} for b, s in found.items()],
    }
    if chosen.json:
        print(json.dumps(result, indent=1))
        return
    print(f"threads {torch.get_num_threads()}; generate at batch {BATCH}: {base:.3f} and {repeated:.3f} s an episode")
    for b, s in found.items():
        print(f"engine at batch {b:>3}: {s:.3f} s an episode, {(base + repeated) / 2 / s:.2f} times as fast")


if __name__ == "__main__":
    main()
