"""SKILL.md: written strictly, read leniently, and what is read again is what was written, hostile or not."""

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made import skill

from harness.errors import UsageError
from skills.files import KEYS, document, parse, read_skill, write_skill
from skills.skill import FOLDERS, Provenance, Skill, name_problem, path_problem

laws = settings(derandomize=True, deadline=None, max_examples=80)

signs = ["---\n", "\n---\n", "\r\n", "\n\n", "\ufeff", "\x00", "\x85", "\u2028", "'", '"', "#", ": ", "- ", "&a *a", "<<", "\t"]
hostile = st.sampled_from([*signs, "!!python/name:os.system", "🦊", "𐀀", "\U0010ffff"])
texts = st.lists(st.text(max_size=20) | hostile, max_size=6).map("".join)
names = st.from_regex(r"[a-zäß0-9]{1,8}(-[a-z0-9]{1,8}){0,2}", fullmatch=True).filter(lambda name: not name_problem(name))
segments = st.text(st.characters(exclude_characters='/\\:*?"<>|'), min_size=1, max_size=8).filter(
    lambda s: s.isprintable() and s[0] != "."
)
paths = st.builds(lambda folder, segment: f"{folder}/{segment}", st.sampled_from(FOLDERS), segments).filter(
    lambda p: not path_problem(p)
)
skills = st.builds(
    Skill,
    name=names,
    description=texts.filter(str.strip),
    body=texts.filter(str.strip),
    scripts=st.dictionaries(paths, texts, max_size=2),
    tools=st.lists(st.from_regex(r"[\w:()*.-]{1,10}", fullmatch=True), max_size=3).map(tuple),
    version=st.integers(1, 999_999_999),
    license=texts,
    compatibility=texts,
    metadata=st.dictionaries(texts.filter(lambda key: key != "version" and not key.startswith("assay.")), texts, max_size=3),
    provenance=st.builds(Provenance, source=st.just("drafter"), runs=st.just(("r1", "r2")), author_model=texts, note=texts),
)


def said(skill: Skill) -> dict[str, object]:
    """All that a file can say of a skill: where it came from is for the one who reads it."""
    return skill.model_dump(exclude={"provenance"})


@laws
@given(skills)
@example(skill(body="---\nname: evil\n---\n", about="a\n---\nb"))
@example(skill(body="\r\n\r\nx\r\n\n\n"))
@example(skill(body=" x", about="  leading and trailing  "))
def test_what_is_read_is_what_was_written(skill: Skill) -> None:
    again = parse(document(skill), skill.name, skill.scripts)
    assert said(again) == said(skill)
    assert again.content == skill.content
    assert again.provenance.source == "imported"


@settings(derandomize=True, deadline=None, max_examples=25)
@given(skills)
def test_folders_hold_every_byte(tmp_path_factory: pytest.TempPathFactory, skill: Skill) -> None:
    folder = write_skill(skill, tmp_path_factory.mktemp("out"))
    assert said(read_skill(folder)) == said(skill)


@laws
@given(skills)
def test_an_export_keeps_to_the_specification(skill: Skill) -> None:
    text = document(skill, {"effect": "+0.62"})
    assert text.startswith("---\n")
    head = yaml.safe_load(text.split("\n---\n", 1)[0].removeprefix("---\n"))
    assert set(head) <= set(KEYS)
    assert all(isinstance(value, str) for key, value in head.items() if key != "metadata")
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in head["metadata"].items())
    assert head["metadata"]["version"] == str(skill.version)
    assert head["metadata"]["assay.digest"] == skill.digest
    assert head["metadata"]["assay.evidence.effect"] == "+0.62"
    assert head["name"] == skill.name


@laws
@given(
    st.text() | texts.map(lambda text: f"---\n{text}\n---\nbody") | texts.map(lambda text: f"---\ndescription: {text}\n---\nbody")
)
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    refused = ""
    try:
        found = parse(text, "folder")
    except UsageError as error:
        refused = str(error)
    assert "SKILL.md of 'folder'" in refused if refused else found.provenance.source == "imported"


def folder(tmp_path: Path, head: str, body: str = "Do it.\n", name: str = "refund-order") -> Path:
    made = tmp_path / name
    made.mkdir()
    (made / "SKILL.md").write_text(f"---\n{head}\n---\n\n{body}")
    return made


def test_a_plain_foreign_folder(tmp_path: Path) -> None:
    head = "name: refund-order\ndescription: Refunds.\nlicense: MIT\nallowed-tools: Bash(git:*) Read\nmetadata:"
    made = folder(tmp_path, f"{head} {{author: me, version: 3}}")
    (made / "scripts").mkdir()
    (made / "scripts" / "total.py").write_text("print(1)\n")
    found = read_skill(made)
    assert found == Skill(
        name="refund-order", description="Refunds.", body="Do it.\n", license="MIT", tools=("Bash(git:*)", "Read"), version=3,
        metadata={"author": "me"}, scripts={"scripts/total.py": "print(1)\n"}, provenance=Provenance(source="imported"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("head", "field", "value", "note"),
    [
        ("name: Refund Order!\ndescription: d", "name", "refund-order", "name 'Refund Order!' mended to 'refund-order'"),
        ("description: d", "name", "refund-order", "name None mended"),
        ("name: other\ndescription: d", "name", "other", "its folder is called 'refund-order', the skill 'other'"),
        ("name: refund-order\ndescription: Use when: asked", "description", "Use when: asked", "belongs in quotes"),
        ("name: refund-order\ndescription: d\nversion: 2.0", "version", 1, "unknown key 'version' left out"),
        ("name: refund-order\ndescription: d\nmetadata:\n  version: 1.2.0", "version", 1, "version '1.2.0' is no whole number"),
        ("name: refund-order\ndescription: d\nmetadata: [1]", "metadata", {}, "metadata is no mapping"),
        ("name: refund-order\ndescription: d\nmetadata:\n  a: {b: c}\n  d: e", "metadata", {"d": "e"}, "metadata 'a' is no text"),
        ("name: refund-order\ndescription: d\nallowed-tools: [Read, {a: b}]", "tools", ("Read",), "what is no tool name"),
        ("name: refund-order\ndescription: d\nallowed-tools: Read, Grep", "tools", ("Read", "Grep"), ""),
        ("name: refund-order\ndescription: d\nlicense: [MIT]", "license", "", "license is no text"),
        (f"name: refund-order\ndescription: {'d' * 2000}", "description", "d" * 1024, "2000 characters cut at 1024"),
        (
            f"name: refund-order\ndescription: d\ncompatibility: {'c' * 600}",
            "compatibility",
            "c" * 500,
            "600 characters cut at 500",
        ),
        ("name: refund-order\ndescription: yes", "description", "yes", ""),
    ],
)
def test_what_can_be_mended_is_mended_and_said(tmp_path: Path, head: str, field: str, value: object, note: str) -> None:
    found = read_skill(folder(tmp_path, head))
    assert getattr(found, field) == value
    assert note in found.provenance.note
    assert bool(found.provenance.note) == bool(note)


def test_a_file_from_another_system_is_read(tmp_path: Path) -> None:
    made = tmp_path / "windows"
    made.mkdir()
    (made / "skill.md").write_bytes("\ufeff---\r\nname: windows\r\ndescription: d\r\n---\r\n\r\nOne.\r\nTwo.\r\n".encode())
    assert read_skill(made).body == "One.\nTwo.\n"


def test_what_a_folder_says_of_its_own_merit_is_a_note_and_nothing_more(tmp_path: Path) -> None:
    own = skill(source="agent").replace(provenance=Provenance(source="agent", runs=("r1",), author_model="local/tiny", note="n"))
    found = read_skill(write_skill(own, tmp_path, {"effect": "+1.00", "status": "active"}))
    assert found.provenance.source == "imported"
    assert found.provenance.runs == ()
    assert found.provenance.author_model == "local/tiny"
    assert (
        found.provenance.note
        == f"says of its source: agent; says of its digest: {own.digest}; says of its runs: r1; says of its note: n"
    )
    assert found.metadata == {}


@pytest.mark.parametrize(
    ("head", "body", "told"),
    [
        ("name: a", "x", "has no description: add a line"),
        ("name: a\ndescription: ' '", "x", "has no description"),
        ("name: a\ndescription: d", " \n", "has nothing below its front matter"),
        ("description: [", "x", "front matter is not YAML"),
        ("- a\n- b", "x", "front matter is not YAML"),
        ("description: d\nmetadata:\n  a: &a [x, x]\n  b: *a", "x", "aliases are not allowed"),
        ("description: d\nmetadata: !!python/object/apply:os.system ['true']\n'", "x", "front matter is not YAML"),
        ("description: " + "[" * 5000, "x", "more than 8 levels"),
        ("description: d\nlicense: " + "x" * 70_000, "x", "at most 64000 characters"),
        ('description: "\\ud800"', "x", "description"),
        ("description: d", "x" * 200_001, "at most 200000"),
    ],
)
def test_what_cannot_be_mended_is_refused(tmp_path: Path, head: str, body: str, told: str) -> None:
    with pytest.raises(UsageError, match=r"SKILL\.md of 'refund-order'") as raised:
        read_skill(folder(tmp_path, head, body))
    assert told in str(raised.value)


def test_no_front_matter_no_file_no_folder(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text("# Just Markdown\n")
    with pytest.raises(UsageError, match="does not begin with front matter: a line `---`"):
        read_skill(tmp_path)
    for empty in (tmp_path / "gone", tmp_path / "SKILL.md"):
        with pytest.raises(UsageError, match=r"holds no SKILL\.md: give the folder of one skill"):
            read_skill(empty)
    (tmp_path / "SKILL.md").write_bytes(b"---\nname: \xff\n---\n")
    with pytest.raises(UsageError, match="is not UTF-8"):
        read_skill(tmp_path)


def test_links_and_pipes_are_refused_and_never_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("---\ndescription: key\n---\ntop secret")
    made = folder(tmp_path, "description: d")
    (made / "scripts").symlink_to(tmp_path)
    with pytest.raises(UsageError, match=r"scripts is a link"):
        read_skill(made)
    (made / "scripts").unlink()
    (made / "SKILL.md").unlink()
    (made / "SKILL.md").symlink_to(secret)
    with pytest.raises(UsageError, match=r"SKILL\.md cannot be read"):
        read_skill(made)
    (made / "SKILL.md").unlink()
    os.mkfifo(made / "SKILL.md")
    with pytest.raises(UsageError, match="is no plain file"):
        read_skill(made)


def test_a_folder_is_read_within_bounds(tmp_path: Path) -> None:
    made = folder(tmp_path, "description: d")
    (made / "scripts").mkdir()
    (made / ".git").mkdir()
    (made / ".git" / "big").write_bytes(b"x" * 2_000_000)
    (made / "README.md").write_text("about")
    (made / "scripts" / "tool.bin").write_bytes(b"\xff\xfe")
    (made / "scripts" / "ok.py").write_text("1")
    found = read_skill(made)
    assert found.scripts == {"scripts/ok.py": "1"}
    for left in (".git/ left out", "README.md left out: only text files below scripts/", "scripts/tool.bin left out"):
        assert left in found.provenance.note
    (made / "scripts" / "big.txt").write_text("x" * 1_000_001)
    with pytest.raises(UsageError, match="larger than the 1000000 bytes allowed"):
        read_skill(made)
    (made / "scripts" / "big.txt").unlink()
    for n in range(200):
        (made / "scripts" / f"{n}.py").write_text("1")
    with pytest.raises(UsageError, match="allowed are 64 files"):
        read_skill(made)


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path) -> None:
    own = skill()
    assert write_skill(own, tmp_path / "new" / "place") == tmp_path / "new" / "place" / own.name
    with pytest.raises(UsageError, match="exists already: remove it"):
        write_skill(own, tmp_path / "new" / "place")
    clash = own.replace(scripts={"scripts/a": "file", "scripts/a/b": "needs a folder there"})
    with pytest.raises(UsageError, match="cannot be written"):
        write_skill(clash, tmp_path)
    assert not (tmp_path / own.name).exists()
