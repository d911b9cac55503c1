"""Words: BM25 over a fixed set of texts; it knows shared words and no meaning."""

from collections.abc import Mapping
from typing import Any


class Words:
    """An index of texts by id, made once and never changed; English stop words are left out."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._ids = sorted(texts)
        documents = _split([texts[id] for id in self._ids])
        self._index: Any = None
        if any(documents):  # bm25s divides by the number of words
            import bm25s

            self._index = bm25s.BM25()
            self._index.index(documents, show_progress=False)

    def scores(self, query: str) -> dict[str, float]:
        """BM25 score by id; only texts that share a word with the query are in it."""
        words = _split([query])[0] if self._index is not None else []
        if not words:
            return {}
        found = zip(self._ids, self._index.get_scores(words), strict=True)
        return {id: float(score) for id, score in found if score > 0}


def _split(texts: list[str]) -> list[list[str]]:
    import bm25s

    split: list[list[str]] = bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)
    return split
