"""The results as Markdown, between the marks of docs/performance.md, and as a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from bench.goals import GOALS, Goal, cpu, seconds
from bench.peers import PEERS
from bench.results import Comparison, Measurement, Row
from bench.workloads import slug


def reference(table: Comparison) -> Row | None:
    """Whom ratios are to: this project's first way that was measured."""
    ours = [peer.name for peer in PEERS if peer.name.startswith(("zero-rename", "load()"))]
    found = [row for name in ours if (row := table.row(name))]
    return found[0] if found else None


def ratios(tables: Sequence[Comparison]) -> str:
    """One line of JSON: by workload and peer, times of ours in the same run."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for table in tables:
        ours = reference(table)
        for row in table.rows:
            if ours is None or row is ours or not row.counted or table.workload.verb == "cold":
                continue
            of = {"seconds": seconds, "cpu": cpu, "requests": _requests}
            values = {name: row.ratio(ours, act) for name, act in of.items()}
            known = {name: round(value, 2) for name, value in values.items() if value is not None}
            found.setdefault(table.workload.name, {})[row.peer] = known
    values = {goal.title: goal.value(_by_name(tables)) for goal in GOALS}
    goals = {title: round(value, 2) for title, value in values.items() if value is not None}
    return json.dumps({"ratios": found, "goals": goals})


def markdown(tables: Sequence[Comparison], header: str, profiles: Mapping[str, str]) -> str:
    """The page's part.

    :param header: of what run, on which machine.
    :param profiles: of goals that were missed, by their titles.
    """
    lines = [header, "", *_goals(tables), ""]
    for title, profile in profiles.items():
        lines += [f"### Why: {title}", "", profile, ""]
    for table in tables:
        lines += [f"### {table.workload.title}", "", *_table(table), ""]
    return "\n".join(lines)


def missed(tables: Sequence[Comparison]) -> list[Goal]:
    by_name = _by_name(tables)
    values = [(goal, goal.value(by_name)) for goal in GOALS]
    return [goal for goal, value in values if value is not None and not goal.met(value)]


def _by_name(tables: Sequence[Comparison]) -> dict[str, Comparison]:
    return {table.workload.name: table for table in tables}


def _goals(tables: Sequence[Comparison]) -> Iterator[str]:
    yield "| goal | wanted | here | |"
    yield "|---|---|---:|---|"
    for goal in GOALS:
        value = goal.value(_by_name(tables))
        if value is None:
            yield f"| {goal.title} | {goal.bound} | | not measured |"
        else:
            word = "met" if goal.met(value) else "**missed**"
            yield f"| {goal.title} | {goal.bound} | {value:.2f} | {word} |"


def _table(table: Comparison) -> Iterator[str]:
    yield _sentence(table)
    yield ""
    if table.workload.verb == "cold":
        yield from _cold(table)
        return
    measured = [row for row in table.rows if row.counted]
    if len(measured) > 1:
        yield f"![Seconds by peer](bench/{slug(table.workload.name)}.svg)"
        yield ""
    ours = reference(table)
    yield (
        "| | seconds | to ours | CPU: driver, JVM, workers | to ours | requests | $ a 1,000 | "
        "MB written | files | MB: driver, worker |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for row in sorted(measured, key=lambda it: it.median(seconds) or 0):
        cells = [_seconds(row), _ratio(row, ours, seconds), _cpu(row), _ratio(row, ours, cpu)]
        dollars = row.median(lambda run: run.dollars) or 0
        cells += [f"{row.median(_requests):,.0f}", f"{dollars * 1000:.2f}"]
        written = (row.median(lambda run: run.written) or 0) / 1e6
        cells += [f"{written:,.2f}" if written else "", f"{row.files:,}" if row.files else ""]
        cells += [_memory(row)]
        yield f"| {_name(row)} | {' | '.join(cells)} |"
    for row in table.rows:
        if not row.counted:
            why = row.why or f"the store throttled all of {len(row.runs)} runs"
            yield f"| {row.peer} | {_plain(why)} | | | | | | | | |"


def _sentence(table: Comparison) -> str:
    it = table.workload
    late = f"each answer {it.latency * 1000:.0f} ms late" if it.latency else "no latency added"
    if it.verb in ("abort", "recover"):
        return f"{it.tasks:,} files; {late}."
    if it.verb == "merge":
        return f"{it.rows // 100:,} rows into {it.rows:,}, a file in each partition; {late}."
    tasks = f"{it.tasks:,} task{'s' * (it.tasks > 1)}"
    files = f"{it.files:,} file{'s' * (it.files > 1)}"
    return f"{it.rows:,} rows, {tasks} of Spark, {files}; {late}."


def _cold(table: Comparison) -> Iterator[str]:
    yield "| | start | first save | second save | CPU of all three | requests of the second |"
    yield "|---|---:|---:|---:|---:|---:|"
    for row in table.rows:
        if len(row.runs) == 3 and not row.throttled:
            took = " | ".join(f"{run.seconds:.2f} s" for run in row.runs)
            used = sum(run.all_cpu for run in row.runs)
            yield f"| {row.peer} | {took} | {used:.1f} s | {_requests(row.runs[2]):,.0f} |"
        else:
            yield f"| {row.peer} | {_plain(row.why) or 'throttled'} | | | | |"


def _name(row: Row) -> str:
    """With what the reader should know of its runs."""
    notes = [row.why] if row.why else []
    if row.throttled:
        notes.append(f"{row.throttled} of {len(row.runs)} runs throttled, not counted")
    if len(row.runs) == 1:
        notes.append("one run")
    elif row.cut:
        notes.append(f"{len(row.runs)} runs, then the time was up")
    return f"{row.peer} ({_plain('; '.join(notes))})" if notes else row.peer


def _plain(text: str) -> str:
    """For a cell of a table."""
    short = " ".join(text.split())[:160]
    return short.translate({ord(c): "\\" + c for c in "|<>[]*_`"})


def _seconds(row: Row) -> str:
    all_of = [run.seconds for run in row.counted]
    spread = f" ({min(all_of):.2f} to {max(all_of):.2f})" if len(all_of) > 1 else ""
    return f"{row.median(seconds):.2f}{spread}"


def _cpu(row: Row) -> str:
    groups = ("driver", "jvm", "workers")
    parts = [row.median(lambda run, group=group: run.cpu.get(group, 0)) or 0 for group in groups]
    split = ", ".join(f"{part:.1f}" for part in parts)
    return f"{row.median(cpu):.2f} ({split})" if parts[1] else f"{row.median(cpu):.2f}"


def _ratio(row: Row, ours: Row | None, of: object) -> str:
    value = row.ratio(ours, of) if ours else None  # type: ignore[arg-type]
    return "" if value is None else f"{value:.2f}"


def _memory(row: Row) -> str:
    shown = ("driver", "workers")
    groups = [row.median(lambda run, group=group: run.memory.get(group, 0)) for group in shown]
    return ", ".join(f"{value / 1e6:.0f}" for value in groups if value)


def _requests(run: Measurement) -> float:
    return sum(run.requests.values())
