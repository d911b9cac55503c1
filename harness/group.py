"""Group: rollouts of one task that are compared with each other; it computes nothing."""

from harness.task import Task
from harness.trajectory import Trajectory
from harness.value import Value


class Group(Value):
    task: Task
    members: tuple[Trajectory, ...]
    """Each with its `arm`."""
    parents: tuple[str, ...] = ()
    """Ids of trajectories that the members branched from."""
