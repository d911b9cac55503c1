"""Small episodes and skills for the tests of this room; no test lives here."""

from collections.abc import Sequence
from datetime import UTC, datetime

from harness.message import Action, Observation
from harness.reward import Reward
from harness.task import Split, Task
from harness.trajectory import Source, Step, Trajectory
from skills.skill import Provenance, Skill
from skills.skill import Source as Origin


def skill(
    name: str = "refund-order", body: str = "> refund NUMBER\n", *, about: str = "Refund an order.", source: Origin = "agent"
) -> Skill:
    return Skill(name=name, description=about, body=body, provenance=Provenance(source=source))


def step(line: str, answer: str, turn: int = 0) -> Step:
    tool, _, rest = line.partition(" ")
    action = Action(kind="call", tool=tool, arguments={"number": rest}, text=f" {line}")
    return Step(turn=turn, action=action, observation=Observation(content=answer), text=f" {line}")


def episode(
    id: str = "run-1",
    instruction: str = "Refund order 5481.",
    lines: Sequence[tuple[str, str]] = (("refund 5481", "to finish, type: confirm Q510"), ("confirm Q510", "")),
    *,
    split: Split = "train",
    reward: float | None = 1.0,
    source: Source = "policy",
) -> Trajectory:
    return Trajectory(
        id=id,
        task=Task(instruction=instruction, split=split),
        spec="spec",
        policy="local/tiny",
        seed=1,
        source=source,
        steps=tuple(step(line, answer, turn) for turn, (line, answer) in enumerate(lines)),
        reward=None
        if reward is None
        else Reward(value=reward, note="as asked" if reward == 1 else "missing: refund of order 5481"),
        created=datetime(2026, 1, 1, tzinfo=UTC),
    )
