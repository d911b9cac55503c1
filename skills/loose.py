"""Loose: named text fields out of a small model's answer, however it wrapped them; it invents nothing."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

LONGEST: Final = 40_000
"""Characters of an answer that are looked at."""
MOST_OBJECTS: Final = 50


def fields(answer: str, names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The named fields in the answer, as text; `names` says which other words small models use for each.

    Reads JSON objects, wherever they stand and whatever else they hold (the one with the most of the names counts); else
    quoted fields of an object that is no valid JSON; else headings, `Name: ...`, also in Markdown. Empty when there are none.
    """
    text = answer[:LONGEST]
    known = {word.lower(): name for name, others in names.items() for word in (name, *others)}
    whole = max((_texts(each, known) for each in _objects(text)), key=len, default={})
    return whole or _quoted(text, known) or _headed(text, known)


def _objects(text: str) -> Iterator[Mapping[Any, Any]]:
    decoder = json.JSONDecoder(strict=False)  # line breaks may stand inside strings
    for found in list(re.finditer(r"\{", text))[:MOST_OBJECTS]:
        try:
            value = decoder.raw_decode(text, found.start())[0]
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def _texts(found: Mapping[Any, Any], known: Mapping[str, str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for key, value in found.items():
        name = known.get(str(key).strip().lower())
        if name is not None and (text := _text(value)).strip():
            texts.setdefault(name, text)
    return texts


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(_text(item) for item in value)
    if isinstance(value, dict):
        return " ".join(_text(item) for item in value.values())
    return "" if value is None else str(value)


def _quoted(text: str, known: Mapping[str, str]) -> dict[str, str]:
    """Broken JSON: quotes inside strings, trailing commas, single or triple quotes, no end."""
    key = rf"[\"'`]?\b(?P<key>{'|'.join(map(re.escape, known))})[\"'`]?\s*:\s*"
    after = re.sub(r"\?P<key>", "?:", key)
    found: dict[str, str] = {}
    for opening in re.finditer(rf"{key}(?P<quote>\"\"\"|\"|'|`)", text, re.IGNORECASE):
        quote = re.escape(opening["quote"])
        rest = text[opening.end() :]
        closing = re.search(rf"{quote}\s*(?:,?\s*\}}|,\s*{after}|\Z)", rest, re.IGNORECASE)
        value = rest[: closing.start()] if closing else re.split(r"\n\s*(?:```|\})", rest)[0]
        plain = value.replace("\\n", "\n").replace('\\"', '"').replace("\\'", "'").strip()
        if plain:
            found.setdefault(known[opening["key"].lower()], plain)
    return found


def _headed(text: str, known: Mapping[str, str]) -> dict[str, str]:
    mark = r"[ \t#*_>-]*"
    heading = re.compile(rf"^{mark}({'|'.join(map(re.escape, known))}){mark}:{mark}", re.IGNORECASE | re.MULTILINE)
    marks = list(heading.finditer(text))
    found: dict[str, str] = {}
    for each, end in zip(marks, [*(m.start() for m in marks[1:]), len(text)], strict=bool(marks)):
        value = text[each.end() : end].strip().strip("`").strip()
        if value:
            found.setdefault(known[each[1].lower()], value)
    return found
