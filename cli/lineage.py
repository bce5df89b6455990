"""Commands about lineage: what tables are made from, what is stale or lost, what to run again."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from ..committer import Table
from ..committer.commit.narrowed_run import Left, pending_narrowings
from ..committer.errors import InvalidInputError, counted, escaped
from ..committer.format.job_spec import Owner
from ..committer.store.s3_urls import SCHEME
from ..lineage import WRONG, LineageGraph, LineageState, Plan, Step, look_up, plan
from ..lineage import at_risk as risks
from ..lineage.graph import place_named
from .amounts import age_option
from .output import AsJson, look_where, plain, print_rows, say

app = typer.Typer(
    no_args_is_help=True,
    help="Show what tables are made from, which partitions are stale or lost, and which jobs to "
    "run again in which order. Changes nothing.",
)

Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="TABLE[/PARTITION]...",
        help="Tables, s3://bucket/prefix, or partitions, s3://bucket/prefix/day=2013-01-01.",
    ),
]
Whole = Annotated[
    bool, typer.Option("--whole", help="Let each job make everything again that it made.")
]
CodeVersions = Annotated[
    list[str] | None,
    typer.Option(
        "--code-version",
        metavar="[TABLE=]VERSION",
        help="The present version of the code that makes a table; without TABLE=, the table that "
        "is asked about. What another or an unknown version made is stale.",
    ),
]
AsMermaid = Annotated[bool, typer.Option("--mermaid", help="Print a chart in Mermaid's language.")]


@app.command()
def show(targets: Targets, mermaid: AsMermaid = False, as_json: AsJson = False) -> None:
    """Show what each partition was made from, by which job, and whether its inputs have changed."""
    _refuse_two_forms(mermaid, as_json)
    graph = _look(targets)
    if mermaid:
        _chart(
            (f"{table}/{name}", f"{it.table}/{it.partition}")
            for it in graph.partitions()
            for table, name in it.sources
        )
        return
    _print(graph, list(LineageState), as_json)
    for url in sorted({table for table, _ in graph.targets}):
        table = Table(url)
        found = table.run(pending_narrowings(table.root))
        for left in found:
            _say_narrowing(url, left)


def _say_narrowing(url: str, left: Left) -> None:
    said = left.said
    if said.over:
        return
    word = "has begun by it" if said.taken else f"is to begin within {said.seconds:,} s"
    planner, names = _run(said.planner), ", ".join(sorted(said.partitions))
    what = (
        f"all again, and replace {names} as they were then" if said.whole else f"only {names} again"
    )
    say(
        f"A plan of {planner} lets the run {said.idempotency_key} of {url} make {what}; "
        f"its task {word}, {left.age:,.0f} s ago."
    )


@app.command()
def stale(
    targets: Targets,
    at_risk: Annotated[
        float | None,
        age_option(
            "List instead partitions that are not durable and take longer than this to make again."
        ),
    ] = None,
    durable: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE",
            help="With --at-risk: regard only these tables as durable, as if all others lay in a "
            "fast root.",
        ),
    ] = None,
    code_version: CodeVersions = None,
    as_json: AsJson = False,
) -> None:
    """List partitions that are stale: their inputs have other rows by now, or are stale
    themselves."""
    if durable and at_risk is None:
        raise InvalidInputError(
            "--durable is given without --at-risk, and says nothing about what is stale.",
            remedy="Give --at-risk AGE, too, or leave --durable out.",
        )
    if code_version and at_risk is not None:
        raise InvalidInputError(
            "--code-version says what is stale, and --at-risk lists instead what takes long to "
            "make again.",
            remedy="Leave one of the two out.",
        )
    graph = _look(targets, code_versions=code_version)
    if at_risk is not None:
        _risks(graph, at_risk, durable, as_json)
        return
    found = _print(graph, WRONG, as_json)
    _say_rest(graph)
    look_where(found)


@app.command()
def lost(targets: Targets, as_json: AsJson = False) -> None:
    """List partitions that have lost files: a file is missing in the store."""
    look_where(_print(_look(targets, lost=True), (LineageState.LOST,), as_json))


@app.command(name="plan")
def plan_command(
    targets: Targets,
    whole: Whole = False,
    code_version: CodeVersions = None,
    mermaid: AsMermaid = False,
    as_json: AsJson = False,
) -> None:
    """List the jobs to run again to bring partitions up to date with their inputs, in layers.

    Run the first layer, then ask again: if new rows equal the former ones, jobs that read them need
    not run. "only" marks a task that makes just the named part of its partitions, if
    RecomputeOperator runs it.
    """
    _refuse_two_forms(mermaid, as_json)
    graph = _look(targets, lost=True, code_versions=code_version)
    found = plan(graph, narrow=not whole)
    if mermaid:
        steps = [step for layer in found.layers for step in layer]
        names = {(it.table, it.job): _name(it) for it in (*steps, *found.waiting)}
        lonely = [(names[it.table, it.job], "") for it in steps if not it.after]
        _chart([*lonely, *((names[k], names[s.table, s.job]) for s in steps for k in s.after)])
    else:
        _print_plan(found, as_json)
    for it in found.refused:
        say(f"Refused: {it.said}.")
    for it in found.waiting:
        say(f"Waits for one of the jobs above: {it.job} of {it.table}.")
    _say_rest(graph)
    look_where(found.refused or found.layers)


def _refuse_two_forms(mermaid: bool, as_json: bool) -> None:
    """Refuse --mermaid together with --json.

    :raises InvalidInputError: both are given.
    """
    if mermaid and as_json:
        raise InvalidInputError(
            "--mermaid and --json are given, and the command prints one of the two.",
            remedy="Leave one out.",
        )


def _print_plan(found: Plan, as_json: bool) -> None:
    """Print a plan's jobs, as a table or as JSON."""
    if not as_json:
        _say_head(found)
    rows = [
        (
            number,
            step.table,
            step.said,
            ", ".join(step.besides),
            _run(step.run.owner),
            step.job,
            "" if step.run.seconds is None else f"{step.run.seconds:.0f}",
            "; ".join(step.why),
        )
        for number, layer in enumerate(found.layers, 1)
        for step in layer
    ]
    columns = ("layer", "table", "partitions", "also writes", "run", "job", "seconds", "why")
    print_rows(as_json, columns, rows, dataclasses.asdict(found), "Nothing needs to run again.")


def _risks(graph: LineageGraph, most: float, durable: list[str] | None, as_json: bool) -> None:
    found = risks(graph, most, durable)
    rows = [
        (it.table, it.partition, "" if it.seconds is None else f"{it.seconds:.0f}", it.why)
        for it in found
    ]
    columns = ("table", "partition", "seconds", "why")
    print_rows(as_json, columns, rows, plain(found), "No partition is.")
    look_where(found)


def _look(
    targets: Sequence[str], lost: bool = False, code_versions: Iterable[str] | None = None
) -> LineageGraph:
    versions = dict(_version(it, targets) for it in code_versions or ())
    return look_up(targets, lost=lost, code_versions=versions)


def _bare(url: str) -> str:
    """Return a URL without its scheme."""
    return re.sub(SCHEME, "", url)


def _version(said: str, targets: Sequence[str]) -> tuple[str, str]:
    """Return the table and the code version that an option names."""
    if re.match(SCHEME, said):
        # A table's URL may have an equals sign, too, such as s3://lake/source=crm/flights.
        ends = [at for at, sign in enumerate(said) if sign == "="] or [len(said)]
        # It may be spelt s3a:// where a target is spelt s3://.
        asked = [f"{_bare(it)}/" for it in targets]
        named = (at for at in ends if any(it.startswith(f"{_bare(said[:at])}/") for it in asked))
        at = next(named, ends[0])
        return said[:at], said[at + 1 :]
    tables = {_bare(place_named(target)[0]) for target in targets}
    if len(tables) > 1:
        raise InvalidInputError(
            f"--code-version {said} names no table, and you ask about {len(tables)} tables.",
            remedy="Name it: --code-version s3://bucket/prefix=VERSION.",
        )
    return targets[0], said


def _print(graph: LineageGraph, states: Iterable[LineageState], as_json: bool) -> int:
    found = [it for it in graph.partitions() if it.state in states]
    rows = [
        (
            it.table,
            it.partition,
            it.state,
            "; ".join(it.why),
            ", ".join(it.jobs),
            ", ".join(version or "none" for version in it.code_versions),
            _sources(it.sources),
        )
        for it in found
    ]
    columns = ("table", "partition", "state", "why", "jobs", "code version", "made from")
    print_rows(as_json, columns, rows, plain(found), "No partition is.")
    return len(found)


def _sources(sources: Iterable[tuple[str, str]]) -> str:
    """Return the inputs as text: the number of partitions of each table, or the name of a single
    one."""
    by: dict[str, list[str]] = {}
    for table, name in sources:
        by.setdefault(table, []).append(name)
    return ", ".join(
        f"{table} ({counted(len(names), 'partition')})" if names[1:] else f"{table}/{names[0]}"
        for table, names in by.items()
    )


def _say_head(found: Plan) -> None:
    steps = [step for layer in found.layers for step in layer]
    if steps:
        besides = sum(len(step.besides) for step in steps)
        known = sum(step.run.seconds or 0 for step in steps)
        say(
            f"{counted(len(steps), 'job')} in {counted(len(found.layers), 'layer')}, "
            f"which also write {counted(besides, 'other partition')}; {known:.0f} s of work, "
            f"{found.seconds:.0f} s on the longest path. Run the first layer, then ask again."
        )


def _say_rest(graph: LineageGraph) -> None:
    for state in (LineageState.UNKNOWN, LineageState.SELF_MADE):
        number = sum(it.state is state for it in graph.partitions())
        if number:
            say(
                f"{counted(number, 'other partition')}: {state}; zero-rename lineage show says why."
            )


def _run(owner: Owner) -> str:
    parts: tuple[Any, ...] = (owner.dag_id, owner.run_id, owner.task_id)
    said = " ".join(str(part) for part in parts if part is not None)
    mapped = f"[{owner.map_index}]" if owner.map_index is not None and owner.map_index >= 0 else ""
    return f"{said}{mapped}" or owner.application or ""


def _name(step: Step) -> str:
    seconds = "" if step.run.seconds is None else f", {step.run.seconds:.0f} s"
    return f"{step.table} {', '.join(step.partitions)}: {_run(step.run.owner) or step.job}{seconds}"


def _chart(edges: Iterable[tuple[str, str]]) -> None:
    """Print a flow chart of arrows in Mermaid. An edge to ``""`` is a name without an arrow."""
    ids: dict[str, str] = {}
    lines = ["flowchart LR"]
    for edge in edges:
        names = [name for name in edge if name]
        for name in names:
            if name not in ids:
                ids[name] = f"n{len(ids)}"
                shown = escaped(name).replace('"', "#quot;")
                lines.append(f'    {ids[name]}["{shown}"]')
        if len(names) > 1:
            lines.append(f"    {ids[names[0]]} --> {ids[names[1]]}")
    typer.echo("\n".join(lines))
