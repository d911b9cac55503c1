"""The bank: versions that never change, sets of them by digest, and a history of moves that only grows."""

from datetime import UTC
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from made import skill

from harness.errors import StoreError, UsageError
from memory.database import Database
from skills.bank import UNMEASURED, Bank, Put, Revision
from skills.skill import MOVES, Skill, Status


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(Database(f"sqlite:///{tmp_path / 'assay.db'}"))


def put(bank: Bank, *skills: Skill) -> list[Put]:
    with bank.database.write() as session:
        return [bank.put(session, each) for each in skills]


def move(bank: Bank, skill: Skill, status: Status, reason: str = "because", verdict: str = "") -> None:
    with bank.database.write() as session:
        bank.move(session, skill.digest, status, reason, verdict)


def test_a_skill_comes_back_as_it_was(bank: Bank) -> None:
    whole = skill().replace(scripts={"scripts/a.py": "1"}, tools=("refund",), metadata={"ä": "\x00 b"}, version=3)
    assert put(bank, whole) == [Put(reason="added")]
    assert bank.get(whole.digest) == whole
    assert put(bank, whole) == [Put(reason="known")]
    with pytest.raises(UsageError, match=r"no skill 'nope' in the bank; `assay skills list`"):
        bank.get("nope")


def test_a_new_skill_is_a_candidate_and_an_imported_one_in_quarantine(bank: Bank) -> None:
    own, foreign = skill("own"), skill("foreign", "other\n", source="imported")
    put(bank, own, foreign)
    assert (bank.status(own.digest), bank.status(foreign.digest), bank.status("nope")) == ("candidate", "quarantined", None)
    [first] = bank.history(own.digest)
    assert (first.status, first.reason, first.verdict) == ("candidate", "new", UNMEASURED)
    assert first.created.tzinfo is UTC


def test_what_says_the_same_is_told_its_twin(bank: Bank) -> None:
    first, second = skill("one", source="human"), skill("two", source="drafter")
    assert bank.twin(second) == ""
    put(bank, first)
    assert bank.twin(second) == first.digest
    assert bank.twin(first) == ""
    assert put(bank, second) == [Put(reason="duplicate", twin=first.digest)]
    assert bank.history(second.digest)[0].reason == f"duplicate of {first.digest}"


def test_a_revision_never_shows_a_text_twice(bank: Bank) -> None:
    first, second = skill("one"), skill("two")
    put(bank, first, second)
    with (
        pytest.raises(UsageError, match=r"^duplicate: skills (one .* and two|two .* and one) .* say the same"),
        bank.database.write() as session,
    ):
        bank.put_revision(session, Revision(skills=(first.digest, second.digest)))


def test_a_revision_is_a_set_named_by_what_it_holds(bank: Bank) -> None:
    one, two = skill("b-one", "one\n"), skill("a-two", "two\n")
    put(bank, one, two)
    both = Revision(skills=(one.digest, two.digest, one.digest))
    assert both == Revision(skills=(two.digest, one.digest))
    with bank.database.write() as session:
        bank.put_revision(session, both)
        bank.put_revision(session, both)
    assert bank.revision(both.digest) == both
    assert bank.skills(both.digest) == (two, one), "by name"
    assert Bank(bank.database, "other").skills(both.digest) == (two, one)


def test_the_empty_digest_is_the_empty_set(bank: Bank) -> None:
    assert bank.revision("") == Revision()
    assert bank.skills("") == ()
    with pytest.raises(UsageError, match=r"no bank revision 'ffff'; `assay lineage show`"):
        bank.revision("ffff")


def test_a_revision_of_skills_that_are_not_there_is_refused(bank: Bank) -> None:
    with pytest.raises(UsageError, match="no skill 'abc' in the bank"), bank.database.write() as session:
        bank.put_revision(session, Revision(skills=("abc",)))


def test_moves_are_appended_with_reason_and_verdict(bank: Bank) -> None:
    own = skill()
    put(bank, own)
    move(bank, own, "active", "admitted with own", "trial-1")
    move(bank, own, "retired", "by hand")
    assert [(m.status, m.reason, m.verdict) for m in bank.history(own.digest)] == [
        ("candidate", "new", UNMEASURED), ("active", "admitted with own", "trial-1"), ("retired", "by hand", UNMEASURED),
    ]  # fmt: skip
    assert bank.status(own.digest) == "retired"


def test_illegal_moves_are_refused_and_leave_no_trace(bank: Bank) -> None:
    foreign = skill("foreign", source="imported")
    put(bank, foreign)
    with pytest.raises(UsageError, match=r"skill foreign is quarantined: only a verdict makes it active; try it: assay evolve"):
        move(bank, foreign, "active")
    with pytest.raises(UsageError, match=r"cannot become retired: allowed are active, candidate, rejected"):
        move(bank, foreign, "retired")
    with pytest.raises(UsageError, match=r"not in the bank of agent 'main'"):
        move(bank, skill("unseen", "unseen\n"), "active")
    assert len(bank.history(foreign.digest)) == 1
    move(bank, foreign, "active", "admitted", "trial-2")
    assert bank.status(foreign.digest) == "active"


def test_writes_stand_or_fall_with_the_callers_transaction(bank: Bank) -> None:
    own = skill()
    with pytest.raises(RuntimeError, match="power cut"), bank.database.write() as session:  # noqa: PT012
        bank.put(session, own)
        bank.move(session, own.digest, "active", "admitted", "trial-1")
        bank.put_revision(session, Revision(skills=(own.digest,)))
        assert bank.status(own.digest, session) == "active"
        raise RuntimeError("power cut")
    assert bank.status(own.digest) is None
    assert bank.list() == ()


def test_lineages_and_tenants_have_statuses_of_their_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'assay.db'}"
    acme = Database(url, "acme")
    main, other, rival = Bank(acme), Bank(acme, "other"), Bank(Database(url, "rival"))
    own = skill()
    put(main, own)
    move(main, own, "active")
    assert (main.status(own.digest), other.status(own.digest), rival.status(own.digest)) == ("active", None, None)
    assert other.get(own.digest) == own
    assert put(other, own) == [Put(reason="known")]
    assert (other.status(own.digest), main.status(own.digest)) == ("candidate", "active")
    with pytest.raises(UsageError, match="no skill"):
        rival.get(own.digest)
    assert rival.list() == ()


def test_a_listing_shows_where_each_stands_and_why(bank: Bank) -> None:
    one, two = skill("b-one", "one\n"), skill("a-two", "two\n")
    put(bank, one, two)
    move(bank, one, "active", "admitted", "trial-1")
    assert [(e.skill.name, e.status, e.history[-1].verdict) for e in bank.list()] == [
        ("a-two", "candidate", UNMEASURED), ("b-one", "active", "trial-1"),
    ]  # fmt: skip
    assert [e.skill for e in bank.list("active")] == [one]
    assert bank.list("retired") == ()


def test_a_skill_that_this_version_cannot_read_is_named(bank: Bank) -> None:
    put(bank, skill())
    with bank.database.write() as session:
        session.connection().exec_driver_sql("UPDATE skill SET body = json_set(body, '$.novelty', 1)")
    with pytest.raises(StoreError, match=r"skill refund-order .* cannot be read by this version"):
        bank.list()


class Lives(RuleBasedStateMachine):
    """Any row of attempted moves leaves a history in which each step was legal, and every other attempt was refused."""

    def __init__(self) -> None:
        super().__init__()
        self.bank = Bank(Database("sqlite://"))
        self.skills = [skill("own"), skill("foreign", "foreign\n", source="imported")]
        put(self.bank, *self.skills)
        self.expected: list[list[Status]] = [["candidate"], ["quarantined"]]

    @rule(which=st.sampled_from([0, 1]), status=st.sampled_from(list(MOVES)), verdict=st.sampled_from(["", "trial-1"]))
    def attempt(self, which: int, status: Status, verdict: str) -> None:
        kind = MOVES[self.expected[which][-1]].get(status)
        if kind == "by hand" or (kind == "measured" and verdict):
            move(self.bank, self.skills[which], status, verdict=verdict)
            self.expected[which].append(status)
        else:
            with pytest.raises(UsageError):
                move(self.bank, self.skills[which], status, verdict=verdict)

    @invariant()
    def history_is_what_was_allowed(self) -> None:
        assert [[m.status for m in self.bank.history(s.digest)] for s in self.skills] == self.expected

    def teardown(self) -> None:
        self.bank.database.close()


Lives.TestCase.settings = settings(derandomize=True, deadline=None, max_examples=8, stateful_step_count=12)
test_lives = Lives.TestCase


@settings(derandomize=True, deadline=None)
@given(st.lists(st.text(alphabet="0123456789abcdef", min_size=4, max_size=4), max_size=6))
def test_order_and_repetition_do_not_name_a_revision(digests: list[str]) -> None:
    assert Revision(skills=tuple(digests)).digest == Revision(skills=tuple(reversed([*digests, *digests]))).digest
