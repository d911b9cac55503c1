"""Evidence: a verdict with its pairs and its source in words, for reports; and a stored skill as a Change to be tried."""

from api.report import Candidate
from evolve.change import Change
from evolve.gate import Rule
from evolve.house import House
from evolve.verdict import Verdict
from evolve.vigil import restoring
from harness.errors import UsageError
from rl.shelf import Shelf
from skills.bank import Bank
from skills.skill import Skill

SOURCES = {
    "agent": "the agent's own successes on train tasks",
    "drafter": "written by a model from a failure and a success on train tasks",
    "human": "written by a person",
    "imported": "imported from a SKILL.md folder",
    "planted": "planted for a demonstration",
}


def told(house: House, change: Change, verdict: Verdict, rule: Rule, source: str = "") -> Candidate:
    """One row of a report."""
    skill = change.drafts[0] if change.drafts else None
    return Candidate(
        name=change.name,
        source=source or (SOURCES.get(skill.provenance.source, skill.provenance.source) if skill else change.proposer),
        verdict=verdict,
        rule=rule,
        pairs=house.ledger.values(verdict.trial, verdict.pairs),
        text=skill.body if skill else change.why,
    )


def found(bank: Bank, wanted: str) -> Skill:
    """The newest skill of this name, or the one whose digest begins so; raises UsageError for none or several."""
    entries = [entry.skill for entry in bank.list()]
    named = [skill for skill in entries if skill.name == wanted]
    if named:
        return max(named, key=lambda skill: skill.version)
    begun = [skill for skill in entries if skill.digest.startswith(wanted)]
    if len(begun) != 1:
        known = ", ".join(sorted({skill.name for skill in entries})) or "none yet"
        raise UsageError(f"skill {wanted!r}: {len(begun)} match; the names are {known}; `assay skills list` shows them")
    return begun[0]


def stored(house: House, wanted: str) -> Change:
    """A stored skill (imported, rejected, retired) as a Change; the trial decides."""
    skill = found(house.bank, wanted)
    if house.bank.status(skill.digest) in ("retired", "internalised"):
        shelf = Shelf(house.lineage.database)
        return restoring(skill.name, (skill.digest,), shelf, house.lineage, why=f"bring {skill.name} back")
    return Change(name=skill.name, why=skill.description, drafts=(skill,), proposer=skill.provenance.source)
