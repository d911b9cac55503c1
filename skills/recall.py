"""Recall: the one way from a task to hints out of the revision that the spec names; it decides nothing about their worth."""

import asyncio
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from harness.hint import Hint, Recalled
from harness.message import Message
from harness.prompt import request
from harness.seams import Scorer
from harness.spec import HarnessSpec, RecallSizes
from harness.task import Task
from memory.embed import Embedder
from memory.index import Index
from memory.vectors import Vector, Vectors
from memory.words import Words
from skills.bank import Bank
from skills.skill import Skill

POOL: Final = 50
"""Skills that each of the two searches nominates. A revision of no more is judged whole, whatever the index misses."""
RERANKED: Final = 16
"""Most skills whose likelihood is asked for one task."""
RANK_CONSTANT: Final = 60
"""Of reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009): a skill's score is the sum of 1 / (60 + rank)."""
SHELVES: Final = 8
"""Revisions kept ready to be searched."""
REMEMBERED: Final = 2048
"""Vectors of tasks kept in memory."""


Ranker = Literal["none", "dense", "fused", "likelihood"]


@dataclass(frozen=True)
class _Shelf:
    """The skills of one revision, ready to be searched; it never changes, so it is made once."""

    skills: dict[str, Skill]
    vectors: dict[str, NDArray[np.float64]]
    words: Words


@dataclass(frozen=True)
class _Found:
    digest: str
    skill: Skill
    cosine: float
    fused: float


class SkillRecall:
    """Task and spec to hints: dense and word search fused, a floor, then the policy's own likelihood, then a token budget.

    Only the revision that the spec names is read, so what is retired, rejected or quarantined cannot come back, and both
    arms of a trial are frozen. Hints come ordered by name, version and digest, not by score: tasks with the same hints
    share their prompt's beginning. The text of a hint is the skill's body.
    """

    def __init__(self, bank: Bank, embedder: Embedder, index: Index, scorer: Scorer | None = None) -> None:
        """`scorer`: where the policy's log-probs can be had."""
        self.bank, self.index, self.scorer = bank, index, scorer
        self.vectors = Vectors(bank.database, embedder)
        self._embedder = embedder
        self._shelves: dict[str, _Shelf] = {}
        self._asked: dict[str, Vector] = {}
        self._turn = threading.Lock()

    async def __call__(self, task: Task, spec: HarnessSpec) -> Recalled:
        """Raises UsageError when the revision is unknown, StoreError when the index cannot be used."""
        sizes = spec.recall
        if not spec.bank or not self.bank.skills(spec.bank):
            return Recalled(reason="the bank is empty: the spec names no skills")
        if not sizes.skills:
            return Recalled(reason="the spec asks for no skills: recall.skills is 0")
        shelf, found, ranker = await asyncio.to_thread(self._search, task.instruction, spec.bank)
        near = [each for each in found if each.cosine >= sizes.floor]
        if not near:
            best = max(each.cosine for each in found)
            return Recalled(reason=f"no skill above the floor: best was {best:.2f} < {sizes.floor:g} (recall.floor)")
        scores = {each.digest: each.cosine for each in near}
        if self.scorer is not None and not _all_fit(near, sizes):
            ranker = "likelihood"
            likelihoods = await self._likelihoods(task, spec, near[:RERANKED], self.scorer)
            near = sorted(near, key=lambda each: -likelihoods.get(each.digest, -math.inf))  # stable: the others stay in order
            scores |= likelihoods
        taken, reason = _taken(near, sizes, len(shelf.skills))
        hints = tuple(
            Hint(
                kind="skill", id=digest, name=skill.name, version=skill.version, text=skill.body, score=scores[digest],
                ranker=f"{ranker}:{self._embedder.name}",
            )
            for digest, skill in shelf.skills.items()
            if digest in taken
        )  # fmt: skip
        return Recalled(hints=hints, ranker=ranker if hints else "none", reason=reason)

    def reindex(self) -> int:
        """Build the index anew from SQL, with every skill of the bank; returns how many. Embeds only what never was."""
        entries = self.bank.list()
        vectors = self.vectors.of([entry.skill.searched for entry in entries])
        return self.index.rebuild({entry.skill.digest: vector for entry, vector in zip(entries, vectors, strict=True)})

    def _search(self, instruction: str, revision: str) -> tuple[_Shelf, list[_Found], Ranker]:
        """The nominated skills, best first, each with its exact cosine; and which searches had a say."""
        with self._turn:
            shelf = self._shelf(revision)
            vector = self._vector(instruction)
        dense = [hit.id for hit in self.index.query(vector, shelf.skills.keys(), POOL)]
        words = shelf.words.scores(instruction)
        spoken = sorted(words, key=lambda digest: (-words[digest], digest))[:POOL]
        fused: dict[str, float] = {}
        for ranking in (dense, spoken):
            for rank, digest in enumerate(ranking, start=1):
                fused[digest] = fused.get(digest, 0.0) + 1 / (RANK_CONSTANT + rank)
        found = [
            _Found(digest, shelf.skills[digest], float(np.dot(shelf.vectors[digest], vector)), fused[digest]) for digest in fused
        ]
        found.sort(key=lambda each: (-each.fused, -each.cosine, each.digest))
        return shelf, found, "fused" if spoken else "dense"

    def _shelf(self, revision: str) -> _Shelf:
        if revision not in self._shelves:
            skills = {skill.digest: skill for skill in self.bank.skills(revision)}
            texts = {digest: skill.searched for digest, skill in skills.items()}
            vectors = dict(zip(texts, self.vectors.of(list(texts.values())), strict=True))
            health = self.index.check(vectors)
            if health.missing:
                self.index.upsert({digest: vectors[digest] for digest in health.missing})
            elif not health.sound:
                self.reindex()
            arrays = {digest: np.asarray(vector) for digest, vector in vectors.items()}
            self._shelves[revision] = _Shelf(skills, arrays, Words(texts))
            while len(self._shelves) > SHELVES:
                del self._shelves[next(iter(self._shelves))]
        return self._shelves[revision]

    def _vector(self, instruction: str) -> Vector:
        if instruction not in self._asked:
            self._asked[instruction] = self._embedder.embed([instruction])[0]
            while len(self._asked) > REMEMBERED:
                del self._asked[next(iter(self._asked))]
        return self._asked[instruction]

    async def _likelihoods(self, task: Task, spec: HarnessSpec, found: Sequence[_Found], scorer: Scorer) -> dict[str, float]:
        """Mean log-likelihood of each skill's text given the task, under the policy (SAPO, arXiv 2606.08755: g(s | x))."""
        context = [Message(role="user", content=request(task))]
        texts = [f"\n{each.skill.body.strip()}\n" for each in found]  # a block of its own, as in a terminal prompt
        scored = await asyncio.gather(*(scorer.score(spec.policy, context, text) for text in texts))
        return {
            each.digest: math.fsum(tokens.logprobs) / len(tokens.logprobs) if tokens.logprobs else -math.inf
            for each, tokens in zip(found, scored, strict=True)
        }


def _all_fit(found: Sequence[_Found], sizes: RecallSizes) -> bool:
    return len(found) <= sizes.skills and sum(_tokens(each.skill) for each in found) <= sizes.tokens


def _taken(found: Sequence[_Found], sizes: RecallSizes, shelved: int) -> tuple[set[str], str]:
    """The first that fit, and why the others are left out."""
    taken: set[str] = set()
    left, too_long, many = sizes.tokens, 0, 0
    for each in found:
        if len(taken) == sizes.skills:
            many += 1
        elif (cost := _tokens(each.skill)) > left:
            too_long += 1
        else:
            taken.add(each.digest)
            left -= cost
    reasons = (
        (too_long, f"budget: {too_long} of {len(found)} skills would exceed {sizes.tokens} tokens (recall.tokens)"),
        (many, f"{many} of {len(found)} skills left out: at most {sizes.skills} are offered (recall.skills)"),
        (
            shelved - len(found),
            f"{shelved - len(found)} of {shelved} skills not near enough: below {sizes.floor:g} (recall.floor)",
        ),
    )
    return taken, "; ".join(words for number, words in reasons if number)


def _tokens(skill: Skill) -> int:
    """Estimated: four characters each."""
    return math.ceil(len(skill.body) / 4)
