"""The HTML report: complete, self-contained, and deaf to what a stranger's skill says; its looks are for eyes."""

import functools
import random
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pydantic import ValidationError

from api.report import Candidate, Report, Stage, render, write
from evolve.capital import band, differences
from evolve.change import Kind
from evolve.gate import Rule, decide
from evolve.lineage import Head
from evolve.measure import Measured
from evolve.remeasure import Remeasured
from evolve.verdict import Arm, Verdict
from evolve.watch import Watch, judge
from harness.errors import UsageError
from harness.message import Usage
from harness.policy import Policy
from harness.spec import HarnessSpec

OWN = "the agent's own 3 successes on train"
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
HOSTILE = (
    "</pre><script>alert('x')</script><img src=http://evil.example/a.png onerror=alert(1)>"
    " $\\frac{ --> ]]> {{ 7 * 7 }} 😀\u202e\x1b[31m"
)


class Page(HTMLParser):
    """Tags, attributes and words of a page as a browser would find them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.words += " "
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        if not self.tags or self.tags[-1] != "style":
            self.words += data


def coins(seed: int, n: int, before: float, after: float) -> list[tuple[float, float]]:
    rng = random.Random(seed)
    return [(float(rng.random() < before), float(rng.random() < after)) for _ in range(n)]


def usage(n: int) -> Usage:
    each = Usage(prompt_tokens=412, completion_tokens=23, cached_tokens=300, seconds=0.13, calls=2, cost=0.0012)
    return sum([each] * n, Usage())


def tried(
    name: str,
    pairs: list[tuple[float, float]],
    rule: Rule,
    *,
    kind: Kind = "add",
    index: int = 1,
    level: float = 0.0114,
    head: int = 1,
    text: str = "> refund 5481",
) -> Candidate:
    """A candidate as a trial would report it, judged by the real gate."""
    found = decide(pairs, rule, level=level)
    judged = pairs[: found.pairs]
    watched = judge(Watch(name="denied actions", margin=0.05), [(0.0, float(i % 9 == 0)) for i in range(found.pairs)], level)
    n = len(judged)
    before, after = (
        Arm(success=sum(p[side] for p in judged) / max(n, 1), episodes=n, failures=3 - side, usage=usage(n)) for side in (0, 1)
    )
    verdict = Verdict(
        trial=f"{index:032x}", change="c" * 64, name=name, kind=kind, head=head, incumbent="a" * 64, candidate="b" * 64,
        decision=found.decision, code=found.code, reason=found.reason, effect=found.effect, low=found.low, high=found.high,
        band=found.band, e_value=found.e_value, pairs=found.pairs, level=level if pairs else None, index=index if pairs else None,
        share=0.25 if pairs else 0.0, drawn=min(41, found.pairs), before=before, after=after,
        watched=(watched,) if pairs else (), created=NOON + timedelta(minutes=index),
    )  # fmt: skip
    return Candidate(name=name, source=OWN, verdict=verdict, rule=rule, pairs=tuple(pairs[: found.pairs + 3]), text=text)


def measured(success: float, low: float, high: float) -> Measured:
    return Measured(success=success, n=128, low=low, high=high, reward=success, prompt_tokens=187.4, usage=usage(128))


def head(number: int, how: str, model: str, **fields: str) -> Head:
    spec = HarnessSpec(policy=Policy(model=model))
    fixed = {"number": number, "parent": number - 1 or None, "how": how, "spec": spec, "created": NOON}
    return Head.model_validate({**fixed, **fields})


def example(name: str = "refund-an-order", text: str = "> refund 5481") -> Report:
    removal = Rule(margin=0.1, max_pairs=140)
    candidates = (
        tried(name, coins(1, 300, 0.1, 0.7), Rule(), text=text),
        tried("small-talk", coins(2, 300, 0.7, 0.7), Rule(), index=2, level=0.0041, head=2),
        tried("refund-quickly", coins(3, 300, 0.7, 0.3), Rule(), index=3, level=0.0025, head=2),
        tried("drop-small-talk", coins(4, 140, 0.9, 0.9), removal, kind="retire", index=4, level=0.002, head=2),
        tried("never-seen", [], Rule(), index=5, head=2),
    )
    again = Remeasured(name=name, effect=0.52, band=(0.21, 0.74), pairs=50, before=(0.03, 0.22), after=(0.5, 0.77), base=0.1)
    return Report(
        title=f"Report on {name}",
        created=NOON,
        model="local/smollm2-135m-instruct",
        stages=(
            Stage(
                name="base", measured=measured(0.078, 0.038, 0.139), greedy=measured(0.26, 0.19, 0.345), source="the bare model"
            ),
            Stage(name=name, measured=measured(0.695, 0.608, 0.774), source=OWN),
        ),
        candidates=candidates,
        heads=(
            head(1, "root", "m"),
            head(2, "admitted", "n", change=name, trial=candidates[0].verdict.trial),
            head(3, "forced", "o", change="by hand"),
            head(4, "rollback", "n", change="back to head 2", trial=candidates[0].verdict.trial),
            head(5, "admitted", "p", change="from elsewhere", trial="f" * 32),
        ),
        fresh=(again,),
        notes=("seed 0; 264 s in all", HOSTILE),
    )


@functools.cache
def page() -> str:
    return render(example())


def test_a_reader_finds_everything_to_doubt_it() -> None:
    report = example()
    words = " ".join(Page(page()).words.split())
    for candidate in report.candidates:
        v = candidate.verdict
        assert candidate.name in words
        assert " ".join(v.reason.split()) in words
        for watched in v.watched:
            assert f"up to {watched.allowed:+.3f}" in words
        if v.pairs:
            assert f"{v.band[0]:+.3f} to {v.band[1]:+.3f}" in words
            assert f"{v.effect:+.3f} (biased {'upwards ' if v.decision == 'admit' else ''}by stopping)" in words
            assert f"trial {v.index} of the stream “{v.kind}”" in words
            assert f"{v.level:.4g}" in words
            assert f"distinct tasks drawn {v.drawn} " in words
            assert f"share of tasks concerned {100 * v.share:.1f} %" in words
            better, same, worse = candidate.outcomes
            assert better + same + worse == v.pairs
            assert f"candidate better in {better}, same in {same}, worse in {worse}" in words
    for said in (
        "infrastructure failures 3 2", "95 %, not the decision level", "The effect at stopping is biased upwards",
        "7.8 %", "3.8 to 13.9 %", "n, episodes 128 128", "26.0 % not measured", "52,736",
        "admission threshold 0", "smallest effect 0.1", "admission threshold -0.1", "minus half the margin -0.05",
        "stop: admit", "stop: reject", "bound at granted level", "No pair was run.", "none was taken",
        "5 (live)", "unmeasured", "not measured again", "trial ffffffffffff, not in this report",
        "+0.520", "50.0 to 77.0 %", "5 tried: 1 admit, 2 reject, 2 indecisive",
    ):  # fmt: skip
        assert said in words, said


def test_what_strangers_wrote_is_shown_and_does_nothing() -> None:
    shown = render(example(name=HOSTILE, text=HOSTILE))
    parsed = Page(shown)
    assert not {"script", "img", "iframe", "link", "object", "embed", "base", "form"} & set(parsed.tags)
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert parsed.words.count("<script>alert('x')</script>") >= 6
    assert "{{ 7 * 7 }}" in parsed.words
    assert "\u202e" not in shown, "a character that turns the text around must be named"
    assert "\x1b" not in shown
    assert "⟨U+202E⟩" in parsed.words


def test_the_page_loads_nothing() -> None:
    parsed = Page(page())
    links = [value for name, value in parsed.attributes if name in ("src", "href", "xlink:href", "srcset", "action", "data")]
    assert links
    assert all(link.startswith("#") for link in links)
    assert not re.search(r"@import|@font-face|url\((?!#)", page())
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in parsed.attributes
    ids = [value for name, value in parsed.attributes if name == "id"]
    targets = {link[1:] for link in links} | set(re.findall(r"url\(#([^)]*)\)", page()))
    assert targets <= set(ids)


def test_pictures_take_their_colours_from_the_page() -> None:
    svgs = re.findall(r"<svg .*?</svg>", page(), re.DOTALL)
    assert len(svgs) == 6, "stages, lineage, and one for each of the four candidates with pairs"
    for svg in svgs:
        assert 'role="img" aria-label="' in svg
        assert not re.search(r"(fill|stroke): #(?!ffffff)", svg)


def test_the_band_that_is_drawn_ends_where_the_verdict_says() -> None:
    for candidate in example().candidates:
        if candidate.judged:
            lows, highs = band(differences(candidate.judged))
            assert (lows[-1], highs[-1]) == pytest.approx(candidate.verdict.band, abs=1e-6)


def test_pairs_that_are_not_the_verdicts_are_refused() -> None:
    good = example().candidates[0]
    for wrong in (good.pairs[: good.verdict.pairs - 1], tuple((b, a) for a, b in good.pairs)):
        with pytest.raises(ValidationError, match=f"its verdict rests on {good.verdict.pairs}"):
            good.replace(pairs=wrong)


def test_an_empty_report_is_a_page_too() -> None:
    empty = render(Report(title="Nothing yet", created=NOON, model="m"))
    assert "Nothing yet" in empty
    assert "<svg" not in empty


def test_a_head_is_made_by_the_admitting_verdict_of_its_trial() -> None:
    report = example()
    stopped = report.candidates[0].verdict.replace(decision="indecisive", code="stopped", created=NOON)
    report = report.replace(verdicts=(stopped,))
    assert report.made(report.heads[0]) is None
    assert report.made(report.heads[1]) == report.candidates[0].verdict
    assert report.made(report.heads[3]) is None, "a rollback measures nothing"
    assert report.settled().count(report.candidates[0].verdict) == 1


def test_write_replaces_the_page_at_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    write(Report(title="first", created=NOON, model="m"), path)
    write(Report(title="second", created=NOON, model="m"), path)
    assert "second" in path.read_text(encoding="utf-8")
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_write_refuses_in_words_and_leaves_nothing(tmp_path: Path) -> None:
    taken = tmp_path / "report.html"
    taken.mkdir()
    with pytest.raises(UsageError, match=r"report\.html: cannot be written .*--out"):
        write(Report(title="t", created=NOON, model="m"), taken)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
