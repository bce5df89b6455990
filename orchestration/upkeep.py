"""Upkeep of a table: settle its jobs, abort what nobody will complete, compare heads and store; and
what of it only a person can mend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..committer.errors import InvalidInputError, ZeroRenameError, escaped
from ..committer.upkeep.recovery import Outcome, Recovered, is_lasting
from ..committer.upkeep.verify import FindingKind

if TYPE_CHECKING:
    from ..committer import Table

#: Lines of one table and kind in a summary; the log has all.
_LINES = 20
#: Characters of a Markdown summary at most: it goes into Airflow's database.
_MARKDOWN = 20_000


@dataclass
class Upkeep:
    """What was done to one table.

    :param jobs: open jobs by what became of them; ``uploads``, ``findings`` and old
        ``records`` likewise.
    :param catalog: what its catalog was told: ``table`` (created, updated, unchanged) and how many
        partitions were ``added``, ``updated`` and ``dropped``; empty: nothing.
    :param person: what only a person can mend, a sentence each.
    :param again: what the next run tries again.
    :param notes: what is worth a look, and harms nobody.
    """

    table: str
    jobs: dict[str, int] = field(default_factory=dict)
    uploads: dict[str, int] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    catalog: dict[str, Any] = field(default_factory=dict)
    person: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def step(self) -> Iterator[None]:
        """One that fails is told of, and does not keep the next from it."""
        try:
            yield
        except ZeroRenameError as error:
            (self.person if is_lasting(error) else self.again).append(escaped(str(error)))

    def capped(self) -> dict[str, Any]:
        """As XCom takes it."""
        lists = {name: getattr(self, name) for name in ("person", "again", "notes")}
        shown = {name: lines[:_LINES] for name, lines in lists.items()}
        left_off = {name: max(0, len(lines) - _LINES) for name, lines in lists.items()}
        return {**asdict(self), **shown, "left_off": left_off}


def look_after(
    table: Table,
    *,
    apply: bool,
    foreign_age: float | None,
    patience: float | None,
    register: Callable[[Table], dict[str, Any]] | None = None,
) -> Upkeep:
    """Recover, purge, gc, index and verify a table.

    :param foreign_age: seconds from which foreign uploads are aborted; ``None`` leaves them.
    :param register: tells a catalog what the table is, once its jobs are settled; returns what it
        told.
    """
    done = Upkeep(table.root.url)
    with done.step():
        _purge(table, done, apply, foreign_age, patience)
    with done.step():
        done.catalog = {} if register is None else register(table)
    with done.step():
        _gc(table, done, apply)
    with done.step():
        if apply and not table.write_index():
            why = "the index was not written: another process did, or the store refused"
            done.notes.append(why)
    with done.step():
        _verify(table, done)
    return done


def _purge(
    table: Table, done: Upkeep, apply: bool, foreign_age: float | None, patience: float | None
) -> None:
    report = table.purge(
        older_than=foreign_age, foreign=foreign_age is not None, apply=apply, patience=patience
    )
    done.jobs = dict(Counter(str(it.outcome) for it in report.recovered))
    done.uploads = dict(Counter(str(it.action) for it in report.entries))
    for it in report.recovered:
        _sort(it, done)
    failed = [it for it in report.entries if str(it.action) == "failed"]
    done.again += [f"{escaped(it.key)}: {escaped(it.reason)}" for it in failed]


def _gc(table: Table, done: Upkeep, apply: bool) -> None:
    report = table.gc(apply=apply)
    counts = {"folded": report.folded, "condensed": report.condensed, "removed": report.removed}
    prefix = "" if apply else "would-be-"
    done.records = {f"{prefix}{name}": number for name, number in counts.items() if number}
    done.again += [f"{escaped(key)}: {cause}" for key, cause in report.failed.items()]


def _sort(job: Recovered, done: Upkeep) -> None:
    said = f"{job.job}: {escaped(job.detail)}"
    if job.outcome is Outcome.FAILED:
        (done.person if job.lasting else done.again).append(said)
    elif job.outcome is Outcome.LEFT:
        done.notes.append(said)


def _verify(table: Table, done: Upkeep) -> None:
    try:
        found = table.verify()
    except InvalidInputError as error:
        done.notes.append(f"not verified: {escaped(error.message)}")  # No heads: coordination none.
        return
    done.findings = dict(Counter(str(it.kind) for it in found))
    for it in found:
        said = f"{it.kind}: {escaped(it.key)} ({escaped(it.detail)})"
        (done.notes if it.kind is FindingKind.UNNAMED else done.person).append(said)


def as_markdown(done: Sequence[Upkeep], applied: bool) -> str:
    """A page about all tables, what needs a person first."""
    lines = ["# Maintenance" if applied else "# Maintenance, reported only (apply=False)", ""]
    titles = {
        "person": "For a person",
        "again": "Tried again by the next run",
        "notes": "Worth a look",
    }
    for name, title in titles.items():
        told = [(it.table, line) for it in done for line in getattr(it, name)[:_LINES]]
        if told:
            lines += [f"## {title}", "", *(f"* `{table}`: {line}" for table, line in told), ""]
    lines += ["| table | jobs | uploads | differences | old records |", "|---|---|---|---|---|"]
    lines += [
        f"| `{it.table}` | {_counts(it.jobs)} | {_counts(it.uploads)} | {_counts(it.findings)} "
        f"| {_counts(it.records)} |"
        for it in done
    ]
    registered = [f"* `{it.table}`: {_registered(it)}" for it in done if it.catalog]
    lines += ["", *registered] if registered else []
    text = "\n".join(lines if done else [*lines[:2], "There is no table."])
    return text if len(text) <= _MARKDOWN else f"{text[:_MARKDOWN]}\n\n… the log has the rest"


def _registered(done: Upkeep) -> str:
    told = done.catalog
    counted = {name: told[name] for name in ("added", "updated", "dropped") if told[name]}
    partitions = f", partitions: {_counts(counted)}" if counted else ""
    return f"registered as {told['catalog']}, {told['table']}{partitions}"


def _counts(counted: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counted.items())) or "none"
