"""The error budget: levels, and their life in the database."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.budget import ALPHA, ErrorBudget, Stream, level
from harness.errors import UsageError
from memory.database import Database

laws = settings(derandomize=True, deadline=None, max_examples=60)


Opened = Callable[[str], Database]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """The same file, opened for a tenant as often as one likes."""
    databases: list[Database] = []

    def open_for(tenant: str) -> Database:
        databases.append(Database(f"sqlite:///{tmp_path / 'assay.db'}", tenant))
        return databases[-1]

    yield open_for
    for database in databases:
        database.close()


def take(budget: ErrorBudget, stream: Stream = "add") -> float:
    with budget.database.write() as session:
        return budget.take(session, stream).level


def admit(budget: ErrorBudget, stream: Stream = "add") -> None:
    with budget.database.write() as session:
        budget.admit(session, stream)


@pytest.mark.parametrize(("t", "expected"), [(1, 0.0114), (2, 0.0041), (5, 0.0013), (10, 0.00077)])
def test_the_grants_are_those_of_the_design(t: int, expected: float) -> None:
    assert level(0.05, t, 50, 0) == pytest.approx(expected, abs=10 ** (-4 if t < 10 else -5) / 2)


@laws
@given(st.sampled_from(list(ALPHA.values())), st.integers(1, 200))
def test_a_stream_without_admissions_never_spends_more_than_alpha(alpha: float, n: int) -> None:
    spent = sum(level(alpha, t, n, 0) for t in range(1, 20_000))
    assert 0.99 * alpha < spent <= alpha


@laws
@given(st.integers(1, 200), st.integers(1, 400), st.integers(0, 399))
def test_levels_rise_with_admissions_and_stay_below_alpha(n: int, t: int, admissions: int) -> None:
    admissions = min(admissions, t - 1)
    found = level(0.05, t, n, admissions)
    assert found == pytest.approx((admissions + 1) * level(0.05, t, n, 0))
    assert 0 < found < 0.05


@pytest.mark.parametrize(
    "asked", [(0.0, 1, 50, 0), (1.0, 1, 50, 0), (0.05, 0, 50, 0), (0.05, 1, 0, 0), (0.05, 3, 50, 3), (0.05, 3, 50, -1)]
)
def test_impossible_trials_have_no_level(asked: tuple[float, int, int, int]) -> None:
    with pytest.raises(UsageError, match="error budget"):
        level(*asked)


def test_a_peek_takes_nothing_and_a_take_is_never_given_back(opened: Opened) -> None:
    budget = ErrorBudget(opened("acme"))
    assert budget.peek("add") == budget.peek("add")
    first = budget.peek("add")
    assert (first.stream, first.index, first.level) == ("add", 1, level(0.05, 1, 50, 0))
    assert take(budget) == first.level
    assert budget.peek("add").index == 2
    assert take(budget) == level(0.05, 2, 50, 0)
    assert budget.state("add").taken == 2


def test_only_measured_admissions_raise_the_levels_of_their_own_stream(opened: Opened) -> None:
    budget = ErrorBudget(opened("acme"))
    take(budget)
    admit(budget)
    assert budget.peek("add").level == level(0.05, 2, 50, 1)
    assert budget.peek("retire").level == level(0.025, 1, 50, 0)
    assert budget.peek("restore").level == level(0.025, 1, 50, 0)
    take(budget, "retire")
    assert (budget.state("add").admissions, budget.state("retire").admissions) == (1, 0)


def test_what_was_never_tried_cannot_be_admitted(opened: Opened) -> None:
    budget = ErrorBudget(opened("acme"))
    with pytest.raises(UsageError, match="0 add trials"):
        admit(budget)
    take(budget)
    with pytest.raises(UsageError, match="0 retire trials"):
        admit(budget, "retire")
    admit(budget)
    with pytest.raises(UsageError, match="1 add trials"):
        admit(budget)


def test_it_lives_as_long_as_the_lineage_and_apart_from_others(opened: Opened) -> None:
    first = ErrorBudget(opened("acme"))
    take(first)
    admit(first)
    assert ErrorBudget(opened("acme")).state("add") == first.state("add")
    assert ErrorBudget(opened("acme"), "other").state("add").taken == 0
    assert ErrorBudget(opened("rival")).state("add").taken == 0


def test_a_failed_transaction_takes_nothing(opened: Opened) -> None:
    budget = ErrorBudget(opened("acme"))
    with pytest.raises(RuntimeError, match="power cut"), budget.database.write() as session:  # noqa: PT012
        budget.take(session, "add")
        raise RuntimeError("power cut")
    assert budget.state("add").taken == 0


def test_the_campaign_is_fixed_by_the_first_trial_of_any_stream(opened: Opened) -> None:
    short = ErrorBudget(opened("acme"), campaign=10)
    assert take(short, "retire") == level(0.025, 1, 10, 0)
    assert ErrorBudget(opened("acme")).peek("add").level == level(0.05, 1, 10, 0)
    long = ErrorBudget(opened("acme"), campaign=80)
    with pytest.raises(UsageError, match="campaign of 10"):
        long.peek("add")
    with pytest.raises(UsageError, match="campaign of 10"):
        take(long)
    with pytest.raises(UsageError, match="found a campaign of 0"):
        ErrorBudget(opened("acme"), campaign=0)


def test_two_trials_that_begin_at_once_get_different_places(opened: Opened) -> None:
    taken: list[float] = []

    def begin() -> None:
        mine = ErrorBudget(opened("acme"))
        for _ in range(5):
            taken.append(take(mine))

    ErrorBudget(opened("acme"))
    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken, reverse=True) == [level(0.05, t, 50, 0) for t in range(1, 21)]
