"""Listings and moves by hand: the bank, the lineage and the runs of one agent, in words or JSON; none of it needs a model."""

import json
import sys
from pathlib import Path
from typing import cast

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from api.evidence import found
from api.settings import Settings
from api.wiring import reindexed, stores
from evolve.ledger import Ledger
from evolve.lineage import Lineage
from evolve.stale import stale
from evolve.verdict import Verdict
from evolve.vigil import vigil
from harness.errors import UsageError
from harness.task import Split
from harness.trajectory import Trajectory
from memory.store import Store
from skills.bank import Entry
from skills.files import read_skill, write_skill


def list_skills(settings: Settings, *, as_json: bool) -> None:
    _, bank, _, lineage = stores(settings)
    evidence = _evidence(lineage)
    rows = [
        {
            "name": e.skill.name, "version": e.skill.version, "digest": e.skill.digest, "status": e.status,
            "source": e.skill.provenance.source, "description": e.skill.description,
            "verdict": _evidence_of(e, evidence),
        }
        for e in bank.list()
    ]  # fmt: skip
    if as_json:
        return _print(rows)
    table = _table("skill", "version", "status", "source", "evidence", "digest")
    for row, entry in zip(rows, bank.list(), strict=True):
        proof = _short(evidence.get(entry.history[-1].verdict))
        _row(table, row["name"], row["version"], row["status"], row["source"], proof, entry.skill.digest[:12])
    return _show(table, "the bank is empty: `assay evolve TASKS.jsonl` drafts skills, `assay skills import FOLDER` takes one in")


def show_skill(settings: Settings, wanted: str, *, as_json: bool) -> None:
    _, bank, _, lineage = stores(settings)
    skill = found(bank, wanted)
    evidence = _evidence(lineage)
    history = bank.history(skill.digest)
    verdicts = [evidence[m.verdict] for m in history if m.verdict in evidence]
    if as_json:
        return _print({
            "skill": skill.model_dump(mode="json"), "digest": skill.digest, "status": bank.status(skill.digest),
            "history": [m.model_dump(mode="json") for m in history], "verdicts": [v.model_dump(mode="json") for v in verdicts],
        })  # fmt: skip
    out = Console(highlight=False)
    out.print(escape(f"{skill.name} version {skill.version}, {bank.status(skill.digest)}, {skill.digest}"), style="bold")
    out.print(
        escape(f"{skill.description}\nsource: {skill.provenance.source}, {len(skill.provenance.runs)} runs\n\n{skill.body}\n")
    )
    for move in history:
        out.print(escape(f"{move.created.astimezone():%Y-%m-%d %H:%M}  {move.status:12s} {move.reason} ({move.verdict})"))
    for verdict in verdicts:
        out.print(escape(f"verdict {verdict.trial}: {_short(verdict)}; {verdict.reason}"))
    return None


def export_skill(settings: Settings, wanted: str, directory: Path) -> None:
    _, bank, _, lineage = stores(settings)
    skill = found(bank, wanted)
    evidence = _evidence(lineage)
    verdict = next((evidence[m.verdict] for m in reversed(bank.history(skill.digest)) if m.verdict in evidence), None)
    facts = {"status": str(bank.status(skill.digest))}
    if verdict is not None:
        facts |= {
            "utility.effect": f"{verdict.effect:+.4f}", "utility.ci95": f"[{verdict.band[0]:+.4f}, {verdict.band[1]:+.4f}]",
            "utility.pairs": str(verdict.pairs), "utility.decision": verdict.decision,
        }  # fmt: skip
    print(write_skill(skill, directory, evidence=facts))


def import_skill(settings: Settings, folder: Path) -> None:
    database, bank, _, _ = stores(settings)
    skill = read_skill(folder)
    with database.write() as session:
        put = bank.put(session, skill)
    twin = f" (it says the same as {put.twin[:12]})" if put.twin else ""
    print(f"{put.reason}: {skill.name} {skill.digest[:12]} is {bank.status(skill.digest)}{twin}")
    print(f"try it: assay evolve TASKS.jsonl --skill {skill.name}")


def reindex(settings: Settings) -> None:
    print(f"{reindexed(settings)} vectors are in the index")


def show_lineage(settings: Settings, *, as_json: bool) -> None:
    database, bank, _, lineage = stores(settings)
    heads, verdicts = lineage.heads(), lineage.verdicts()
    seen = vigil(lineage, Ledger(database, settings.agent), Store(database)) if heads else None
    aged = stale(lineage, seen=seen) if heads else []
    if as_json:
        return _print({
            "heads": [h.model_dump(mode="json") for h in heads], "verdicts": [v.model_dump(mode="json") for v in verdicts],
            "watch": seen.model_dump(mode="json") if seen else None, "stale": [one.model_dump(mode="json") for one in aged],
        })  # fmt: skip
    table = _table("head", "parent", "how", "change", "skills", "model", "since")
    for head in heads:
        names = ", ".join(skill.name for skill in bank.skills(head.spec.bank)) if head.spec.bank else "none"
        live = " (live)" if head is heads[-1] else ""
        since = f"{head.created.astimezone():%Y-%m-%d %H:%M}"
        policy = head.spec.policy
        answers_as = f"{policy.model}@{policy.adapter[:12]}" if policy.adapter else policy.model
        _row(table, f"{head.number}{live}", head.parent or "", head.how, head.change, names, answers_as, since)
    _show(table, "no lineage yet: `assay run TASKS.jsonl` or `assay evolve TASKS.jsonl` begins one")
    if verdicts:
        answers = _table("change", "kind", "head", "decision", "effect", "95 % band", "pairs", "reason")
        for v in verdicts:
            band = f"[{v.band[0]:+.2f}, {v.band[1]:+.2f}]"
            _row(answers, v.name, v.kind, v.head, v.decision, f"{v.effect:+.3f}", band, v.pairs, v.reason)
        _show(answers, "")
    out = Console(highlight=False)
    if seen is not None:
        said = f"ALARM: {seen.reason}; `assay evolve TASKS.jsonl` asks the gate again" if seen.alarm is not None else seen.reason
        out.print(escape(f"watch over head {seen.head}: {said}"), style="red" if seen.alarm is not None else "")
    for one in aged:
        out.print(escape(f"stale: {one.name}: {one.why}; `assay evolve TASKS.jsonl --stale --margin M` tries it again"))
    return None


def rollback(settings: Settings, number: int) -> None:
    _, _, _, lineage = stores(settings)
    print(f"head {lineage.rollback(number).number} is live: the spec of head {number}")


def list_runs(settings: Settings, *, split: str | None, limit: int, as_json: bool) -> None:
    if split not in (None, "train", "validate", "test"):
        raise UsageError(f"--split {split!r}: allowed are train, validate, test")
    runs = Store(stores(settings)[0]).newest(limit=limit, split=cast(Split | None, split))
    if as_json:
        return _print([run.model_dump(mode="json", exclude={"steps"}) for run in runs])
    table = _table("run", "when", "split", "arm", "reward", "stop", "steps", "task")
    for run in runs:
        reward = f"error: {run.error.wall}" if run.error else "-" if run.reward is None else f"{run.reward.value:.2f}"
        when, words = f"{run.created.astimezone():%m-%d %H:%M:%S}", run.task.instruction[:60]
        _row(table, run.id[:12], when, run.task.split, run.arm, reward, run.stop, len(run.steps), words)
    return _show(table, "no runs yet: `assay run TASKS.jsonl` makes some")


def show_run(settings: Settings, wanted: str, *, as_json: bool) -> None:
    run = Store(stores(settings)[0]).found(wanted)
    if as_json:
        return _print(run.model_dump(mode="json"))
    out = Console(highlight=False)
    out.print(escape(f"{run.id}  {run.task.split}  {run.arm}  {run.policy}  seed {run.seed}"), style="bold")
    out.print(escape(run.task.instruction))
    out.print(escape(f"recalled: {', '.join(h.name for h in run.recalled.hints) or run.recalled.reason} ({run.recalled.ranker})"))
    for place, step in enumerate(run.steps, 1):
        out.print(escape(f"{place:3d}. {_deed(step.text, step.action.tool, dict(step.action.arguments))}"))
        out.print(
            escape(f"     {'! ' if step.observation.error else ''}{step.observation.text}"),
            style="red" if step.observation.error else "dim",
        )
    out.print(escape(_ending(run)))
    return None


def _deed(text: str, tool: str, arguments: dict[str, object]) -> str:
    return text.strip() or f"{tool} {json.dumps(arguments)}"


def _ending(run: Trajectory) -> str:
    if run.error is not None:
        return f"stopped by an error of the {run.error.wall}: {run.error.message}"
    judged = "not judged" if run.reward is None else f"reward {run.reward.value:g} {run.reward.note}"
    used = run.usage
    return (
        f"{run.stop}; {judged}; {used.prompt_tokens + used.completion_tokens} tokens, {used.seconds:.2f} s, {used.cost:.4f} USD"
    )


def _evidence(lineage: Lineage) -> dict[str, Verdict]:
    return {verdict.trial: verdict for verdict in lineage.verdicts()}


def _evidence_of(entry: Entry, evidence: dict[str, Verdict]) -> dict[str, object] | None:
    verdict = next((evidence[m.verdict] for m in reversed(entry.history) if m.verdict in evidence), None)
    return verdict.model_dump(mode="json") if verdict else None


def _short(verdict: Verdict | None) -> str:
    if verdict is None:
        return "unmeasured"
    return f"{verdict.decision} {verdict.effect:+.2f} [{verdict.band[0]:+.2f}, {verdict.band[1]:+.2f}], {verdict.pairs} pairs"


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _row(table: Table, *cells: object) -> None:
    """A row of plain text: what strangers wrote is not markup."""
    table.add_row(*(escape(str(cell)) for cell in cells))


def _show(table: Table, empty: str) -> None:
    Console(highlight=False).print(table if table.row_count else escape(empty))


def _print(data: object) -> None:
    json.dump(data, sys.stdout, indent=2)
    print()
