"""Laws of a Change: adding then dropping is the identity, and what makes no sense is refused by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from evolve.change import Change, Edits, apply
from harness.errors import UsageError
from skills.bank import Revision
from tests.evolve.worlds import ROOT, adding, skill

NAMES = st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True, max_size=4)


@given(NAMES)
def test_adding_and_dropping_is_the_identity(names: list[str]) -> None:
    held = Revision(skills=tuple(skill(n, body=f"body {n}").digest for n in names))
    spec = ROOT.replace(bank=held.digest if names else "")
    added, after = apply(adding("new"), spec, held)
    back, again = apply(Change(name="drop", kind="retire", drops=(adding("new").drafts[0].digest,)), added, after)
    assert again == held
    assert back == spec
    assert added != spec


@given(st.permutations(["a", "b", "c"]))
def test_the_order_of_additions_does_not_matter(names: list[str]) -> None:
    spec, held = ROOT, Revision()
    for name in names:
        change = Change(name=name, drafts=(skill(name, body=f"body {name}"),))
        spec, held = apply(change, spec, held)
    assert held.skills == tuple(sorted(skill(n, body=f"body {n}").digest for n in ("a", "b", "c")))
    assert spec.bank == held.digest


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValidationError, match="changes nothing"):
        Change(name="empty")
    spec, held = apply(adding(), ROOT, Revision())
    with pytest.raises(UsageError, match="has already"):
        apply(adding(), spec, held)
    with pytest.raises(UsageError, match="does not have"):
        apply(Change(name="x", kind="retire", drops=("0" * 64,)), spec, held)


def test_reach_says_where_a_change_can_be_seen() -> None:
    assert adding().reach == "prompt"
    assert Change(name="m", edits=Edits(policy=ROOT.policy.replace(temperature=0.1))).reach == "everywhere"
    assert Change(name="l", edits=Edits(limits=ROOT.limits.replace(steps=3))).reach == "unseen"
    assert Change(name="p", edits=Edits(prompts=ROOT.prompts.replace(system="Hi."))).reach == "prompt"
