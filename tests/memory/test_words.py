"""Words: shared ones score, rare ones more, and texts without words do no harm."""

import pytest

from memory.words import Words

TEXTS = {"refund": "refund an order, then confirm the code", "price": "the price of an item", "rare": "refund refund zebra"}


def test_only_texts_that_share_a_word_score() -> None:
    scores = Words(TEXTS).scores("Refund ORDER 17, zebra!")
    assert set(scores) == {"refund", "rare"}
    assert scores["rare"] > 0


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    words = Words({"a": "refund apple", "b": "refund pear", "c": "refund plum"})
    scores = words.scores("refund plum")
    assert scores["c"] > 2 * scores["a"]


@pytest.mark.parametrize("query", ["", "the of and", "?!", "nothing shared"])
def test_a_query_without_shared_words_finds_nothing(query: str) -> None:
    assert Words(TEXTS).scores(query) == {}


@pytest.mark.parametrize("texts", [{}, {"a": ""}, {"a": "the", "b": "?"}])
def test_texts_without_words_are_never_found(texts: dict[str, str]) -> None:
    assert Words(texts).scores("refund the order") == {}
