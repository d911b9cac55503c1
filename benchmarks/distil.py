"""One step of supervised distillation beside TRL's SFTTrainer: the same rows, weights, LoRA and optimiser, fp32, in one run.

CPU-seconds and wall a step, as ratios of TRL's; each side in a process of its own, in the order ours, theirs, theirs, ours.
Nothing is asserted here: tests/rl/test_parity.py shows that both compute the same. Run from the repository:
`python -m benchmarks.distil [--json] [--steps 10] [--repeats 2]` (needs the extras `local` and `dev`).
"""

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from rl.dataset import Row
from rl.recipe import Point, Recipe

MODELS = Path.home() / ".cache" / "assay" / "models"
WARM = 2
"""Steps of each process that are not counted."""
RECIPE = Recipe(batch=8, held=0.0)


@dataclass(frozen=True)
class Step:
    loss: float
    """Nats a token."""
    norm: float
    """Of the gradient, before clipping."""
    wall: float
    """Seconds since the step before it ended; of the first one, with all that was set up."""
    cpu: float
    """CPU-seconds of the process in that time."""


class Watch:
    """Time since the last look."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def step(self, loss: float, norm: float) -> Step:
        before, self.wall, self.cpu = (self.wall, self.cpu), time.perf_counter(), time.process_time()
        return Step(loss, norm, self.wall - before[0], self.cpu - before[1])


def rows(count: int, *, vocabulary: int, seed: int = 0) -> list[Row]:
    """Rows as distillation makes them: 40 ids of prompt, then turns of the agent's own ids between the world's."""
    draw, made = random.Random(seed), []
    for number in range(count):
        ids, mask = [draw.randrange(3, vocabulary) for _ in range(40)], [False] * 40
        for _ in range(draw.randint(2, 4)):
            for own, length in ((True, draw.randint(4, 9)), (False, draw.randint(4, 12))):
                ids += [draw.randrange(3, vocabulary) for _ in range(length)]
                mask += [own] * length
        made.append(Row(ids=tuple(ids), mask=tuple(mask), run=f"run {number}"))
    return made


def ours(weights: Any, taught: Sequence[Row], recipe: Recipe) -> list[Step]:
    """Our trainer, its one checkpoint and its published adapter left out of the steps' times."""
    from rl.trainer import train

    steps, watch = list[Step](), Watch()

    def on(point: Point) -> None:
        steps.append(watch.step(point.loss, point.norm))

    with tempfile.TemporaryDirectory() as folder:
        train(
            weights, taught, recipe.replace(every=recipe.steps), work=Path(folder) / "work", adapters=Path(folder) / "made", on=on
        )
    return steps


def theirs(weights: Any, taught: Sequence[Row], recipe: Recipe) -> list[Step]:
    """TRL's trainer on the same LoRA weights, without evaluation, saving or schedule; every batch holds all the rows."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import SFTConfig, SFTTrainer

    from rl.lora import adapted

    steps, losses, watch = list[Step](), list[float](), Watch()

    class Exact(SFTTrainer):  # type: ignore[misc]
        """Writes the loss down before it is rounded for the log."""

        def compute_loss(self, *given: Any, **more: Any) -> Any:
            loss = super().compute_loss(*given, **more)
            losses.append(float(loss.detach()))
            return loss

    class Told(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
            if "grad_norm" in logs:
                steps.append(watch.step(losses[-1], float(logs["grad_norm"])))

    columns = {
        "input_ids": [list(row.ids) for row in taught],
        "labels": [[id if own else -100 for id, own in zip(row.ids, row.mask, strict=True)] for row in taught],
    }
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        config = SFTConfig(
            output_dir=folder, per_device_train_batch_size=len(taught), max_steps=recipe.steps, learning_rate=recipe.rate,
            lr_scheduler_type="constant", warmup_steps=0, weight_decay=0.0, max_grad_norm=recipe.clip, optim="adamw_torch",
            use_cpu=True, bf16=False, gradient_checkpointing=False, max_length=None, report_to="none", save_strategy="no",
            logging_steps=1, logging_first_step=True, disable_tqdm=True, dataloader_pin_memory=False, seed=recipe.seed,
        )  # fmt: skip
        trainer = Exact(
            model=adapted(weights.model, recipe), args=config, train_dataset=Dataset.from_dict(columns),
            processing_class=weights.tokenizer, callbacks=[Told()],
        )  # fmt: skip
        trainer.train()
    return steps


def measured(side: str, steps: int) -> list[Step]:
    """One side in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.distil", "--side", side, "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return [Step(**step) for step in json.loads(done.stdout.splitlines()[-1])]


def alone(side: str, steps: int) -> None:
    from harness.models.local.load import load

    weights = load("smollm2-135m-instruct", MODELS, "sdpa")
    taught = rows(RECIPE.batch, vocabulary=weights.model.config.vocab_size)
    run = {"ours": ours, "theirs": theirs}[side]
    print(json.dumps([asdict(step) for step in run(weights, taught, RECIPE.replace(steps=steps + WARM))]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10, help="measured steps of each process")
    parser.add_argument("--repeats", type=int, default=2, help="times that both sides run, in alternating order")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        return alone(given.side, given.steps)
    found: dict[str, list[list[Step]]] = {"ours": [], "theirs": []}
    for repeat in range(given.repeats):
        for side in ("ours", "theirs") if repeat % 2 == 0 else ("theirs", "ours"):
            found[side].append(measured(side, given.steps))
            print(f"{side}, run {repeat + 1} of {given.repeats}", file=sys.stderr)
    told = {
        side: {
            "wall": median(step.wall for run in runs for step in run[WARM:]),
            "cpu": mean(step.cpu for run in runs for step in run[WARM:]),
            "first_loss": runs[0][0].loss, "last_loss": runs[0][-1].loss,
        }
        for side, runs in found.items()
    }  # fmt: skip
    ratios = {what: told["ours"][what] / told["theirs"][what] for what in ("wall", "cpu")}
    if given.json:
        print(json.dumps({**told, "ratio": ratios, "cores": os.cpu_count()}))
        return None
    for side, row in told.items():
        loss = f"loss {row['first_loss']:.6f} to {row['last_loss']:.6f}"
        print(f"{side:7} {row['wall']:6.2f} s wall, {row['cpu']:6.2f} CPU-s a step; {loss}")
    print(f"ours / theirs: wall {ratios['wall']:.2f}, CPU {ratios['cpu']:.2f}")
    return None


if __name__ == "__main__":
    main()
