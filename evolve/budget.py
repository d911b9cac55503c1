"""The error budget: which error level the next trial of a lineage may use; it limits false admissions, not compute or money."""

from typing import Final, Literal

from sqlmodel import Field, Session, SQLModel, select

from harness.errors import UsageError
from harness.value import Value
from memory.database import Database

Stream = Literal["add", "retire", "restore"]

ALPHA: Final[dict[Stream, float]] = {"add": 0.05, "retire": 0.025, "restore": 0.025}
"""The false discovery rate that each stream of trials is held to, for the life of the lineage."""
CAMPAIGN: Final = 50

_DECAY = 1.6
_ZETA = 2.2858
"""The sum of t^-1.6 over all t >= 1, rounded up, so that the levels of a stream without admissions sum to alpha at most."""


class Grant(Value):
    """The error level of one trial: fixed at its first pair, never given back."""

    stream: str
    index: int
    """Place of the trial in its stream, from 1."""
    level: float


class Spent(Value):
    """Where a stream stands."""

    stream: Stream
    alpha: float
    campaign: int
    """Number of trials among which half of alpha is shared out evenly."""
    taken: int
    """Trials that have taken a level."""
    admissions: int
    """Measured admissions, those rolled back later included; forced and imported ones never count."""


def level(alpha: float, t: int, n: int, admissions: int) -> float:
    """Error level of the t-th trial (from 1) of a stream with that many earlier admissions, in a campaign of n trials.

    alpha (t^-1.6 / (2 zeta(1.6)) + [t <= n] / (2 n)) (admissions + 1): half of alpha for ever, half within the campaign. If
    every trial admits only where its capital reaches 1 / level, the false discovery rate is at most alpha, however the trials
    depend on each other: e-LOND, Xu and Ramdas, "Online multiple testing with e-values" (2024). Raises UsageError out of range.
    """
    if not (0 < alpha < 1 and t >= 1 and n >= 1 and 0 <= admissions < t):
        raise UsageError(
            f"error budget: found alpha {alpha}, trial {t}, campaign {n}, {admissions} admissions; "
            "allowed are 0 < alpha < 1, trial and campaign from 1, fewer admissions than trials"
        )
    return float(alpha * (t**-_DECAY / (2 * _ZETA) + (t <= n) / (2 * n)) * (admissions + 1))


class BudgetRow(SQLModel, table=True):
    __tablename__ = "error_budget"
    tenant: str = Field(primary_key=True)
    agent: str = Field(primary_key=True)
    stream: str = Field(primary_key=True)
    campaign: int
    taken: int = 0
    admissions: int = 0


class ErrorBudget:
    """The budget of one lineage (tenant and agent), kept for life: head changes and rollbacks do not touch it."""

    def __init__(self, database: Database, agent: str = "main", campaign: int | None = None) -> None:
        """`campaign` is the number of trials planned for each stream (50 if never said); the first trial fixes it."""
        if campaign is not None and campaign < 1:
            raise UsageError(f"error budget of {agent!r}: found a campaign of {campaign} trials; allowed are 1 or more")
        self.database, self.agent, self.campaign = database, agent, campaign
        database.create(BudgetRow)

    def peek(self, stream: Stream) -> Grant:
        """What the next trial of the stream would get; takes nothing."""
        return _grant(self.state(stream))

    def state(self, stream: Stream) -> Spent:
        """Where the stream stands; raises UsageError when another campaign was declared before."""
        with self.database.read() as session:
            row = session.get(BudgetRow, (self.database.tenant, self.agent, stream))
            return self._spent(row or self._new(stream))

    def take(self, session: Session, stream: Stream) -> Grant:
        """Give the next trial its index and level, inside the caller's write transaction.

        Raises UsageError when another campaign was declared before: a level already granted would have been another.
        """
        row = self._locked(session, stream)
        grant = _grant(self._spent(row))
        row.taken = grant.index
        session.add(row)
        return grant

    def admit(self, session: Session, stream: Stream) -> None:
        """Count a measured admission, inside the caller's write transaction; later levels of the stream rise.

        Raises UsageError when every trial of the stream has been counted as admitted already.
        """
        row = self._locked(session, stream)
        if row.admissions >= row.taken:
            raise UsageError(f"error budget of {self.agent!r}: {row.taken} {stream} trials taken, none is left to admit")
        row.admissions += 1
        session.add(row)

    def _locked(self, session: Session, stream: Stream) -> BudgetRow:
        """The stream's row, nobody else's until the transaction ends; the streams of a lineage begin together."""
        for each in ALPHA:
            if session.get(BudgetRow, (self.database.tenant, self.agent, each)) is None:
                session.add(self._new(each))
        mine = (BudgetRow.tenant == self.database.tenant, BudgetRow.agent == self.agent, BudgetRow.stream == stream)
        return session.exec(select(BudgetRow).where(*mine).with_for_update()).one()

    def _new(self, stream: Stream) -> BudgetRow:
        return BudgetRow(tenant=self.database.tenant, agent=self.agent, stream=stream, campaign=self.campaign or CAMPAIGN)

    def _spent(self, row: BudgetRow) -> Spent:
        if self.campaign is not None and self.campaign != row.campaign:
            raise UsageError(
                f"error budget of {self.agent!r}: its first trial declared a campaign of {row.campaign}, found {self.campaign}; "
                f"levels already granted rest on it: leave it at {row.campaign}, or begin another agent"
            )
        stream = next(s for s in ALPHA if s == row.stream)
        return Spent(stream=stream, alpha=ALPHA[stream], campaign=row.campaign, taken=row.taken, admissions=row.admissions)


def _grant(spent: Spent) -> Grant:
    index = spent.taken + 1
    return Grant(stream=spent.stream, index=index, level=level(spent.alpha, index, spent.campaign, spent.admissions))
