"""Retiring and restoring one skill: through the gate with a task file, by hand and recorded as unmeasured with --force."""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from api.alone import alone
from api.bench import Bench
from api.evidence import found
from api.screen import Screen
from api.settings import Settings
from api.tasks import Workload, load
from api.wiring import opened, stores
from api.work import first_spec
from evolve.change import Change, apply
from evolve.gate import Rule
from evolve.lineage import Lineage
from evolve.purse import Purse
from evolve.verdict import Verdict
from evolve.vigil import restoring
from harness.errors import UsageError
from rl.shelf import Shelf

Deed = Literal["retire", "restore"]


@dataclass(frozen=True)
class Removal:
    """What `assay skills retire` or `restore` was asked for."""

    skill: str
    deed: Deed
    margin: float
    cap: float | None
    max_pairs: int
    max_cost: float
    out: Path
    yes: bool


def by_hand(settings: Settings, wanted: str, deed: Deed) -> None:
    """Change the head by hand: no verdict, no claim on the error budget."""
    _, bank, _, lineage = stores(settings)
    change = _change(lineage, wanted, deed)
    head = lineage.head()
    spec, revision = apply(change, head.spec, bank.revision(head.spec.bank))
    new = lineage.force(change.replace(name=f"{deed} {change.name}"), spec, revision)
    print(f"{deed} {change.name}: head {new.number}, by hand, unmeasured. `assay lineage rollback {head.number}` takes it back")


def try_removal(settings: Settings, path: Path, plan: Removal, *, as_json: bool) -> None:
    """One trial on the validate tasks of a task file; asks before it may spend money unless `--yes`."""
    workload = load(path)
    screen = Screen(quiet=as_json)
    with alone(settings):
        verdict = asyncio.run(_try(settings, workload, plan, screen))
    if as_json:
        json.dump(verdict.model_dump(mode="json") if verdict else None, sys.stdout, indent=2)


async def _try(settings: Settings, workload: Workload, plan: Removal, screen: Screen) -> Verdict | None:
    margin = plan.margin if plan.deed == "retire" else 0.0
    rule = Rule(margin=margin, max_pairs=plan.max_pairs, cap=plan.cap)
    change = _change(stores(settings)[3], plan.skill, plan.deed)
    async with opened(settings, workload, first_spec(settings), purse=Purse(plan.max_cost)) as platform:
        bench = Bench(platform.house, screen, rule, plan.yes)
        if not bench.may_begin(settings):
            return None
        await bench.tried([change], [t for t in workload.tasks if t.split == "validate"])
        bench.report(settings, plan.out)
        return bench.answers.get(change.digest)


def _change(lineage: Lineage, wanted: str, deed: Deed) -> Change:
    """The proposal; raises UsageError where the skill is in the head already, or is not."""
    bank = lineage.bank
    skill, head = found(bank, wanted), lineage.head()
    active = skill.digest in bank.revision(head.spec.bank).skills
    if active == (deed == "restore"):
        raise UsageError(
            f"skill {skill.name} is {bank.status(skill.digest)} and {'in' if active else 'not in'} the head: nothing to {deed}"
        )
    if deed == "retire":
        return Change(name=skill.name, why=f"{skill.name} may no longer be needed", kind="retire", drops=(skill.digest,))
    return restoring(skill.name, (skill.digest,), Shelf(lineage.database), lineage, why=f"bring {skill.name} back")
