"""Worlds: the environments of the episodes under way, each built again after a restart; it decides no action."""

import logging
from collections.abc import Sequence

from harness.episode import Brief
from harness.errors import EnvironmentBroken
from harness.message import Observation
from harness.seams import Environment, OpenEnvironment
from harness.trajectory import Step

log = logging.getLogger(__name__)


class Worlds:
    """One environment a run, from its first node to its last."""

    def __init__(self, open_: OpenEnvironment) -> None:
        self._open = open_
        self._found: dict[str, Environment] = {}

    async def begin(self, brief: Brief) -> tuple[Environment, Observation]:
        """A fresh environment, and what it says first; one that was left from an earlier attempt is closed."""
        await self.end(brief.run)
        environment = self._found[brief.run] = self._open(brief.task, brief.world_seed)
        return environment, await environment.start()

    async def of(self, brief: Brief, steps: Sequence[Step]) -> Environment:
        """The run's environment. After a restart a fresh one, into which the episode's own effects are replayed.

        Raises EnvironmentBroken when it then answers otherwise than before. `world` effects are never repeated.
        """
        if brief.run in self._found:
            return self._found[brief.run]
        environment, _ = await self.begin(brief)
        try:
            await _replay(environment, steps)
        except BaseException:
            await self.end(brief.run)
            raise
        return environment

    async def end(self, run: str) -> None:
        """Close what there is; an environment that fails even in this spoils no finished episode."""
        environment = self._found.pop(run, None)
        if environment is None:
            return
        try:
            await environment.close()
        except Exception:
            log.warning("run %s: its environment could not be closed", run, exc_info=True)


async def _replay(environment: Environment, steps: Sequence[Step]) -> None:
    own = {tool.name for tool in environment.tools if tool.effect == "episode"}
    for step in steps:
        if step.action.kind == "call" and step.action.tool in own and step.permission.decision == "allow":
            again = await environment.step(step.action)
            if again != step.observation:
                raise EnvironmentBroken(
                    f"after a restart {step.action.tool} answered {again.text[:80]!r}, before it {step.observation.text[:80]!r}:"
                    " this environment does not repeat itself, so the run cannot go on"
                )
