"""The command line: arguments in, one call, words or JSON out; nothing heavy is imported before a command needs it."""

import errno
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from api.settings import Settings

app = typer.Typer(
    name="assay",
    help="Run agents on your own tasks, and let them learn only what a paired trial has shown to help.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
skills = typer.Typer(help="The skill bank: what is known, what is active, and on which evidence.", no_args_is_help=True)
lineage = typer.Typer(help="The heads of an agent, each with the verdict that made it.", no_args_is_help=True)
runs = typer.Typer(help="What happened: stored trajectories.", no_args_is_help=True)
app.add_typer(skills, name="skills")
app.add_typer(lineage, name="lineage")
app.add_typer(runs, name="runs")

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Data = Annotated[Path | None, typer.Option("--data", help="Data directory (ASSAY_DATA; default .assay).")]
AgentName = Annotated[str | None, typer.Option("--agent", help="Whose lineage (ASSAY_AGENT; default main).")]
Model = Annotated[
    str | None, typer.Option("--model", help="Model of a new lineage: local/..., vllm/..., openai/..., anthropic/..., ollama/...")
]
BaseUrl = Annotated[str | None, typer.Option("--base-url", help="Address of an OpenAI-compatible server.")]
Price = Annotated[
    str | None, typer.Option("--price", help="IN/OUT, USD per million prompt and completion tokens; else litellm's list.")
]
Concurrency = Annotated[int | None, typer.Option("--concurrency", min=1, help="Episodes at a time (default 8).")]
Cap = Annotated[
    float | None, typer.Option(min=0, help="Mean reward that all removals together may give away (default: this margin).")
]
Tasks = Annotated[Path, typer.Argument(help="Task file, one JSON object a line.")]
GateTasks = Annotated[Path | None, typer.Argument(help="Task file whose validate tasks the trial runs on; not with --force.")]
MaxPairs = Annotated[int, typer.Option(min=1, help="Pairs at which an open trial ends.")]
MaxCost = Annotated[float, typer.Option(min=0, help="US dollars that this command may spend.")]
Force = Annotated[bool, typer.Option("--force", help="By hand, without a trial; recorded as unmeasured.")]
Out = Annotated[Path, typer.Option(help="Where the HTML report goes.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before spending.")]


def settings(
    data: Path | None = None,
    agent: str | None = None,
    model: str | None = None,
    base_url: str | None = None,
    concurrency: int | None = None,
    price: str | None = None,
) -> Settings:
    """The environment's settings under the options that were given."""
    given = {"data": data, "agent": agent, "model": model, "base_url": base_url, "concurrency": concurrency, "price": price}
    chosen = {name: value for name, value in given.items() if value is not None}
    return Settings.model_validate({**Settings().model_dump(), **chosen})


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the report and the demo's data go.")] = Path("out"),
    seed: Annotated[int, typer.Option(help="Another seed gives other tasks and the same story.")] = 0,
    episodes: Annotated[int, typer.Option(min=128, help="Episodes behind each figure on the test split.")] = 128,
    as_json: Json = False,
) -> None:
    """The whole story on the embedded model: try, learn, refuse, measure. No key, no network."""
    from api.demo import demo as tell

    tell(out, seed=seed, episodes=episodes, as_json=as_json)


@app.command()
def run(
    tasks: Tasks,
    model: Model = None,
    base_url: BaseUrl = None,
    concurrency: Concurrency = None,
    price: Price = None,
    split: Annotated[str, typer.Option(help="train, validate, test or all.")] = "all",
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many tasks.")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    data: Data = None,
    agent: AgentName = None,
    as_json: Json = False,
) -> None:
    """Run the live head on tasks and store what happened."""
    from api.work import run_tasks

    run_tasks(
        settings(data, agent, model, base_url, concurrency, price), tasks, split=split, limit=limit, seed=seed, as_json=as_json
    )


@app.command()
def evolve(
    tasks: Tasks,
    model: Model = None,
    base_url: BaseUrl = None,
    concurrency: Concurrency = None,
    price: Price = None,
    skill: Annotated[
        str | None, typer.Option(help="Try this stored skill (name or digest) instead of drafting new ones.")
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Try again the active skills whose evidence is about another policy.")
    ] = False,
    margin: Annotated[float, typer.Option(help="With --stale: mean reward that a removal may give away.")] = 0.0,
    cap: Cap = None,
    examples: Annotated[int, typer.Option(min=1, help="Own successes in a worked-example skill.")] = 3,
    tries: Annotated[int, typer.Option(min=1, help="Runs of each train task before drafting.")] = 2,
    drafter: Annotated[str, typer.Option(help="worked (from own successes), contrast (a model writes), or both.")] = "worked",
    max_pairs: MaxPairs = 300,
    max_cost: MaxCost = 5.0,
    smallest_effect: Annotated[float, typer.Option(help="Gain in mean reward that is worth finding.")] = 0.1,
    campaign: Annotated[int | None, typer.Option(min=1, help="Trials planned for this agent; fixed at the first one.")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    out: Out = Path("out"),
    yes: Yes = False,
    data: Data = None,
    agent: AgentName = None,
    as_json: Json = False,
) -> None:
    """Explore train tasks, draft changes, try each on validate tasks, and keep what has shown that it helps."""
    from api.evolution import Evolution, evolve_tasks

    plan = Evolution(
        skill=skill, stale=stale, margin=margin, cap=cap,
        examples=examples, tries=tries, drafter=drafter, max_pairs=max_pairs, max_cost=max_cost,
        smallest_effect=smallest_effect, campaign=campaign, seed=seed, out=out, yes=yes,
    )  # fmt: skip
    evolve_tasks(settings(data, agent, model, base_url, concurrency, price), tasks, plan, as_json=as_json)


@app.command()
def train(
    tasks: Tasks,
    skill: Annotated[str, typer.Option(help="Active skill whose know-how moves into weights (name or digest).")],
    margin: Annotated[
        float | None, typer.Option(min=0, max=1, help="Mean reward that the adapter may give away; without it: a forecast.")
    ] = None,
    cap: Cap = None,
    runs: Annotated[int, typer.Option(min=8, help="Correct runs to learn from.")] = 48,
    tries: Annotated[int, typer.Option(min=1, help="Runs of each train task, at most.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, max=2, help="2: go on with the first adapter's own successes.")] = 1,
    steps: Annotated[int, typer.Option(min=1, help="Steps of the optimiser.")] = 16,
    batch: Annotated[int, typer.Option(min=1, help="Rows a step.")] = 8,
    rate: Annotated[float, typer.Option(min=0, help="Learning rate of AdamW.")] = 1e-3,
    rank: Annotated[int, typer.Option(min=1, max=256, help="Rank of the adapter.")] = 8,
    reference: Annotated[bool, typer.Option(help="Also train on equally many runs without the skill, to compare.")] = True,
    max_pairs: MaxPairs = 300,
    max_cost: MaxCost = 5.0,
    seed: Annotated[int, typer.Option()] = 0,
    out: Out = Path("out"),
    yes: Yes = False,
    data: Data = None,
    agent: AgentName = None,
    as_json: Json = False,
) -> None:
    """Move a skill from the prompt into weights: practise, train an adapter, and try it in the text's place."""
    from api.train import Training, train_tasks
    from evolve.distil import Course
    from rl.recipe import Recipe

    recipe = Recipe(steps=steps, batch=batch, rate=rate, rank=rank, alpha=2.0 * rank, seed=seed)
    plan = Training(
        skill=skill, course=Course(runs=runs, tries=tries, rounds=rounds, seed=seed, recipe=recipe), margin=margin, cap=cap,
        max_pairs=max_pairs, max_cost=max_cost, reference=reference, out=out, yes=yes,
    )  # fmt: skip
    train_tasks(settings(data, agent), tasks, plan, as_json=as_json)


@app.command()
def doctor(
    tasks: Annotated[Path | None, typer.Argument(help="Task file: also check it.")] = None,
    aa: Annotated[bool, typer.Option("--aa", help="Run the incumbent against itself on these tasks: the noise band.")] = False,
    pairs: Annotated[int, typer.Option(min=10, help="Pairs of the A/A run.")] = 50,
    model: Model = None,
    base_url: BaseUrl = None,
    concurrency: Concurrency = None,
    price: Price = None,
    data: Data = None,
    agent: AgentName = None,
    as_json: Json = False,
) -> None:
    """Check this installation and these tasks; each failing row prints its fix."""
    from api.doctor import examine

    examine(settings(data, agent, model, base_url, concurrency, price), tasks, aa=aa, pairs=pairs, as_json=as_json)


@skills.command("list")
def skills_list(data: Data = None, agent: AgentName = None, as_json: Json = False) -> None:
    """Every skill with its status and evidence."""
    from api.listing import list_skills

    list_skills(settings(data, agent), as_json=as_json)


@skills.command("show")
def skills_show(skill: str, data: Data = None, agent: AgentName = None, as_json: Json = False) -> None:
    """One skill: its text, provenance, history and verdicts. SKILL is a name or the beginning of a digest."""
    from api.listing import show_skill

    show_skill(settings(data, agent), skill, as_json=as_json)


@skills.command("export")
def skills_export(skill: str, directory: Path, data: Data = None, agent: AgentName = None) -> None:
    """Write a skill as an Agent Skills folder (SKILL.md) under DIRECTORY."""
    from api.listing import export_skill

    export_skill(settings(data, agent), skill, directory)


@skills.command("import")
def skills_import(folder: Path, data: Data = None, agent: AgentName = None) -> None:
    """Take in an Agent Skills folder; it is quarantined, and never recalled, until a trial has admitted it."""
    from api.listing import import_skill

    import_skill(settings(data, agent), folder)


@skills.command("retire")
def skills_retire(
    skill: str,
    tasks: GateTasks = None,
    margin: Annotated[float, typer.Option(min=0, help="Mean reward that the removal may give away.")] = 0.0,
    cap: Cap = None,
    max_pairs: MaxPairs = 300,
    max_cost: MaxCost = 5.0,
    force: Force = False,
    out: Out = Path("out"),
    yes: Yes = False,
    base_url: BaseUrl = None,
    concurrency: Concurrency = None,
    price: Price = None,
    data: Data = None,
    agent: AgentName = None,
    as_json: Json = False,
) -> None:
    """Take a skill out of the prompt, if a trial on validate tasks shows that nothing beyond the margin is lost."""
    chosen = settings(data, agent, None, base_url, concurrency, price)
    _move(chosen, "retire", skill, tasks, margin, cap, max_pairs, max_cost, out, force=force, yes=yes, as_json=as_json)


@skills.command("restore")
def skills_restore(
    skill: str,
    tasks: GateTasks = None,
    max_pairs: MaxPairs = 300,
    max_cost: MaxCost = 5.0,
    force: Force = False,
    out: Out = Path("out"),
    yes: Yes = False,
    base_url: BaseUrl = None,
    concurrency: Concurrency = None,
    price: Price = None,
    data: Data = None,
    agent: AgentName = None,
    as_json: Json = False,
) -> None:
    """Bring a retired or internalised skill back, if a trial on validate tasks shows that it helps."""
    chosen = settings(data, agent, None, base_url, concurrency, price)
    _move(chosen, "restore", skill, tasks, 0.0, None, max_pairs, max_cost, out, force=force, yes=yes, as_json=as_json)


@skills.command("reindex")
def skills_reindex(data: Data = None, agent: AgentName = None) -> None:
    """Build the vector index anew from the database."""
    from api.listing import reindex

    reindex(settings(data, agent))


@lineage.command("show")
def lineage_show(data: Data = None, agent: AgentName = None, as_json: Json = False) -> None:
    """The heads, oldest first, and every verdict."""
    from api.listing import show_lineage

    show_lineage(settings(data, agent), as_json=as_json)


@lineage.command("rollback")
def lineage_rollback(number: int, data: Data = None, agent: AgentName = None) -> None:
    """Make an older head live again, as a new head; nothing is deleted."""
    from api.listing import rollback

    rollback(settings(data, agent), number)


@runs.command("list")
def runs_list(
    split: Annotated[str | None, typer.Option(help="train, validate or test.")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 20,
    data: Data = None,
    agent: AgentName = None,
    as_json: Json = False,
) -> None:
    """The newest runs."""
    from api.listing import list_runs

    list_runs(settings(data, agent), split=split, limit=limit, as_json=as_json)


@runs.command("show")
def runs_show(run: str, data: Data = None, agent: AgentName = None, as_json: Json = False) -> None:
    """One run, step by step. RUN is an id or its beginning."""
    from api.listing import show_run

    show_run(settings(data, agent), run, as_json=as_json)


def _move(
    chosen: Settings, deed: Literal["retire", "restore"], skill: str, tasks: Path | None, margin: float, cap: float | None,
    max_pairs: int, max_cost: float, out: Path, *, force: bool, yes: bool, as_json: bool,
) -> None:  # fmt: skip
    from api.removal import Removal, by_hand, try_removal
    from harness.errors import UsageError

    if force == (tasks is not None):
        example = f"assay skills {deed} {skill} TASKS.jsonl{' --margin 0.1' if deed == 'retire' else ''}"
        raise UsageError(f"give either a task file, whose validate tasks decide ({example}), or --force, which nothing decides")
    if tasks is None:
        by_hand(chosen, skill, deed)
        return
    plan = Removal(skill, deed, margin, cap, max_pairs, max_cost, out, yes)
    try_removal(chosen, tasks, plan, as_json=as_json)


def main() -> None:
    """The console script: every error of ours is words and exit code 2, Ctrl-C is 130, and nobody sees a traceback."""
    from pydantic import ValidationError

    from harness.errors import AssayError, Infrastructure

    try:
        app()
    except AssayError as error:
        again = f"\ngo on with: {_again()}" if isinstance(error, Infrastructure) else ""
        sys.exit(_said(f"{error}{again}"))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        sys.exit(_said(f"{error.title}: {place}: {first['msg']}; found {first.get('input')!r}"))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            sys.exit(_said(f"{error.filename or 'the disk'}: {error.strerror}; free some space, then go on with: {_again()}"))
        sys.exit(_said(f"{error.filename or 'the system'}: {error.strerror or error}; check the path, or choose another"))
    except SystemExit as ending:
        if ending.code == INTERRUPTED:
            sys.stderr.write(f"\nstopped; everything that was finished is kept. Go on with: {_again()}\n")
        raise


def _again() -> str:
    return shlex.join(["assay", *sys.argv[1:]])


def _said(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return 2
