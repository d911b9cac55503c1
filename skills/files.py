"""Agent Skills folders: a skill written as SKILL.md with its files, strictly, and read back, leniently; it stores nothing.

Follows the specification of agentskills.io: six top-level keys and no other; what is ours stands under `metadata`, as strings.
A folder is foreign data: it is read within bounds, through no link, and nothing in it is believed about its own merit.
"""

import json
import os
import re
import shutil
import stat
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from harness.errors import UsageError
from skills.skill import (
    FOLDERS,
    LARGEST_FILES,
    LONGEST_BODY,
    LONGEST_COMPATIBILITY,
    LONGEST_DESCRIPTION,
    LONGEST_NAME,
    MOST_FILES,
    OURS,
    Provenance,
    Skill,
    name_problem,
    path_problem,
)

KEYS: Final = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
LARGEST_HEAD: Final = 64_000
LONGEST_NOTE: Final = 2000
DEEPEST: Final = 8
_FENCE: Final = "---"


def document(skill: Skill, evidence: Mapping[str, str] | None = None) -> str:
    """The SKILL.md of a skill; `evidence` goes under metadata as `assay.evidence.KEY`."""
    origin = skill.provenance
    ours = {
        "source": origin.source,
        "runs": " ".join(origin.runs),
        "author-model": origin.author_model,
        "note": origin.note,
        "digest": skill.digest,
        **{f"evidence.{key}": value for key, value in (evidence or {}).items()},
    }
    head = {
        "name": skill.name,
        "description": skill.description,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "allowed-tools": " ".join(skill.tools),
        "metadata": {
            "version": str(skill.version),
            **skill.metadata,
            **{OURS + key: value for key, value in ours.items() if value},
        },
    }
    given = {key: value for key, value in head.items() if value}
    shown = yaml.dump(given, Dumper=_Quoting, sort_keys=False, allow_unicode=True, width=1_000_000)
    return f"{_FENCE}\n{shown}{_FENCE}\n\n{skill.body}"


def write_skill(skill: Skill, directory: Path, evidence: Mapping[str, str] | None = None) -> Path:
    """Write the skill to `directory`/NAME/ and return that folder; raises UsageError when it exists already."""
    folder, building = directory / skill.name, directory / f".{skill.name}.part"
    if folder.exists():
        raise UsageError(f"{folder} exists already: remove it, or export to another directory")
    try:
        shutil.rmtree(building, ignore_errors=True)
        for path, text in {"SKILL.md": document(skill, evidence), **skill.scripts}.items():
            target = building / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="")
        building.rename(folder)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}; export to another directory") from error
    return folder


def read_skill(folder: Path) -> Skill:
    """Read a folder, mending what can be mended; its provenance is `imported`, and says what was mended or left out.

    Raises UsageError when there is no SKILL.md, it has no front matter or no description, or the folder holds links or too much.
    """
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    found = next((name for name in ("SKILL.md", *names) if name in names and name.lower() == "skill.md"), None)
    if found is None:
        raise UsageError(f"{folder} holds no SKILL.md: give the folder of one skill, as the Agent Skills format describes it")
    text = _read(folder / found, LONGEST_BODY * 4 + LARGEST_HEAD)
    if text is None:
        raise UsageError(f"{folder / found} is not UTF-8 text: save it as such")
    scripts, notes = _files(folder)
    return parse(text, folder.resolve().name, scripts, notes)


def parse(text: str, folder: str, scripts: Mapping[str, str] | None = None, left_out: Sequence[str] = ()) -> Skill:
    """A SKILL.md's text to a skill; `folder` is the name of its directory. Raises UsageError as `read_skill` does."""
    head, body, notes = _split(text, folder)
    notes += [f"unknown key {key!r} left out" for key in head if key not in KEYS]
    name = _name(head.get("name"), folder, notes)
    description = _string(head, "description", LONGEST_DESCRIPTION, notes)
    if not description.strip():
        raise UsageError(
            f"SKILL.md of {folder!r} has no description: add a line `description: what it is for, and when to use it`"
        )
    if not body.strip():
        raise UsageError(f"SKILL.md of {folder!r} has nothing below its front matter: write the know-how there")
    metadata = _metadata(head.get("metadata"), notes)
    claims = {key.removeprefix(OURS): metadata.pop(key) for key in list(metadata) if key.startswith(OURS)}
    tools = _tools(head.get("allowed-tools"), notes)
    version = _version(metadata.pop("version", "1"), notes)
    license = _string(head, "license", LONGEST_DESCRIPTION, notes)
    compatibility = _string(head, "compatibility", LONGEST_COMPATIBILITY, notes)
    notes += [*left_out, *(f"says of its {key}: {claims[key]}" for key in ("source", "digest", "runs", "note") if key in claims)]
    try:
        return Skill(
            name=name,
            description=description,
            body=body,
            scripts=scripts or {},
            tools=tools,
            version=version,
            license=license,
            compatibility=compatibility,
            metadata=metadata,
            provenance=Provenance(
                source="imported", author_model=claims.get("author-model", "")[:200], note="; ".join(notes)[:LONGEST_NOTE]
            ),
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"SKILL.md of {folder!r}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


class _Quoting(yaml.SafeDumper):
    """Quotes whatever is not plainly printable: PyYAML loses some line separators otherwise."""


_Quoting.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')
)


class _Strings(yaml.SafeLoader):
    """YAML in which every plain word is a string, nothing refers to anything else, and nothing lies deep.

    An alias bomb is small until it is used, and deep nesting costs seconds before it fails.
    """

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        if self.depth == DEEPEST:
            raise yaml.YAMLError(f"more than {DEEPEST} levels")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_Strings.yaml_implicit_resolvers = {}


def _split(text: str, folder: str) -> tuple[dict[Any, Any], str, list[str]]:
    """Front matter, body, and a note when the former had to be mended."""
    text = text.removeprefix("\ufeff")
    if text.startswith(f"{_FENCE}\r\n"):
        text = text.replace("\r\n", "\n")
    found = re.match(r"---[ \t]*\n((?:.*\n)*?)---[ \t]*(?:\n\n?([\s\S]*))?\Z", text)
    if found is None or len(found.group(1)) > LARGEST_HEAD:
        raise UsageError(
            f"SKILL.md of {folder!r} does not begin with front matter: a line `---`, then `name:` and `description:`, then "
            f"`---`, in at most {LARGEST_HEAD} characters"
        )
    shown, body = found.group(1), found.group(2) or ""
    try:
        return _mapping(shown), body, []
    except (yaml.YAMLError, ValueError) as error:
        try:
            quoted = re.sub(r"^([A-Za-z-]+):[ \t]+([^\s\"'|>\[{].*)$", _quoted, shown, flags=re.MULTILINE)
            return _mapping(quoted), body, ["front matter mended: text with a colon belongs in quotes"]
        except (yaml.YAMLError, ValueError):
            problem = " ".join(str(error).split())[:200]
            raise UsageError(f"SKILL.md of {folder!r}: its front matter is not YAML ({problem}); put texts in quotes") from error


def _mapping(shown: str) -> dict[Any, Any]:
    head = _Strings(shown).get_single_data()
    if not isinstance(head, dict):
        raise ValueError("no mapping of keys to values")
    return head


def _quoted(line: re.Match[str]) -> str:
    return f"{line.group(1)}: {json.dumps(line.group(2).rstrip(), ensure_ascii=False)}"


def _string(head: Mapping[Any, Any], key: str, longest: int, notes: list[str]) -> str:
    value = head.get(key) or ""
    if not isinstance(value, str):
        notes.append(f"{key} is no text, left out")
        return ""
    if len(value) > longest:
        notes.append(f"{key} of {len(value)} characters cut at {longest}")
    return value[:longest]


def _name(given: object, folder: str, notes: list[str]) -> str:
    for name in (given if isinstance(given, str) else "", folder):
        words = re.split(r"[\W_]+", unicodedata.normalize("NFKC", name).lower())
        mended = "-".join(word for word in words if word)[:LONGEST_NAME].strip("-")
        if not name_problem(mended):
            if mended != given:
                notes.append(f"name {given!r} mended to {mended!r}")
            if mended != folder:
                notes.append(f"its folder is called {folder!r}, the skill {mended!r}")
            return mended
    raise UsageError(f"SKILL.md of {folder!r}: {name_problem(str(given or ''))}")


def _metadata(given: object, notes: list[str]) -> dict[str, str]:
    if given and not isinstance(given, dict):
        notes.append("metadata is no mapping, left out")
    pairs: dict[Any, Any] = given if isinstance(given, dict) else {}
    notes += [f"metadata {key!r} is no text, left out" for key, value in pairs.items() if not isinstance(value, str)]
    return {str(key): value for key, value in pairs.items() if isinstance(value, str)}


def _tools(given: object, notes: list[str]) -> tuple[str, ...]:
    words = given if isinstance(given, list) else given.replace(",", " ").split() if isinstance(given, str) else []
    good = tuple(word for word in words if isinstance(word, str) and re.fullmatch(r"[^\s,]+", word))
    if len(good) != len(words) or (given and not words):
        notes.append("allowed-tools: what is no tool name left out")
    return good


def _version(given: str, notes: list[str]) -> int:
    if re.fullmatch(r"[1-9][0-9]{0,8}", given):
        return int(given)
    notes.append(f"version {given!r} is no whole number from 1: taken as 1")
    return 1


def _files(folder: Path) -> tuple[dict[str, str], list[str]]:
    """The texts below the folder by relative path, and what was left out."""
    files: dict[str, str] = {}
    notes: list[str] = []
    for at, folders, names in os.walk(folder):
        here = Path(at)
        if linked := [name for name in (*folders, *names) if (here / name).is_symlink()]:
            raise UsageError(f"{here / linked[0]} is a link: a skill brings its files itself; replace it by the file")
        hidden = [name for name in folders if name.startswith((".", "__"))]
        notes += [f"{(here / name).relative_to(folder).as_posix()}/ left out" for name in hidden]
        folders[:] = sorted(set(folders) - set(hidden))
        for name in sorted(names):
            path = (here / name).relative_to(folder).as_posix()
            if path.lower() == "skill.md":
                continue
            text = None if path_problem(path) else _read(here / name, LARGEST_FILES)
            if text is None:
                notes.append(f"{path} left out: only text files below {', '.join(f'{f}/' for f in FOLDERS)} are taken")
                continue
            files[path] = text
            if len(files) + len(notes) > 2 * MOST_FILES or sum(map(len, files.values())) > LARGEST_FILES:
                raise UsageError(
                    f"{folder} holds too much: allowed are {MOST_FILES} files of {LARGEST_FILES} characters together"
                )
    return files, notes


def _read(path: Path, most: int) -> str | None:
    """A regular file's text; None when it is no UTF-8. Never follows a link, never waits for a pipe."""
    try:
        opened = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; a skill is made of plain files") from error
    with os.fdopen(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise UsageError(f"{path} is no plain file: a skill is made of plain files")
        data = file.read(most + 1)
    if len(data) > most:
        raise UsageError(f"{path} is larger than the {most} bytes allowed")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
