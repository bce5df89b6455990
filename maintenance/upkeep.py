"""Upkeep of a destination: settle its jobs, abort what nobody will complete, compare what its
records name and what is there; and what of it only a person can mend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..committer.errors import InvalidInputError, TableNotFoundError, ZeroRenameError, escaped
from ..committer.upkeep.purge import PurgeAction
from ..committer.upkeep.recovery import is_lasting
from ..committer.upkeep.verify import Finding, FindingKind
from ..s3a.verification.markers import verify_markers
from ..tables.table_at import delta_at
from .conflicts import ConflictOrder, find_at, how_to_settle, resolve_found
from .delta import why_left, write_due_checkpoint
from .destinations import NOTHING
from .purging import PurgeOrder, SettledJob, purge_destination
from .residue import NO_RESIDUE, ResidueReport, residue_lines

if TYPE_CHECKING:
    from ..committer import Table
    from ..tables import DeltaTable
    from .destinations import Destination

    #: Tells a catalog what a table is; returns what it told.
    Register = Callable[[Table | DeltaTable], dict[str, Any]]

#: Lines of one table and kind in a summary; the log has all.
_LINES = 20
#: Characters of a Markdown summary at most: it goes into Airflow's database.
_MARKDOWN = 20_000


@dataclass
class Upkeep:
    """What was done to one destination.

    :param kind: ``table``, ``delta``, ``s3a``, ``table and s3a`` or ``directory``; ``unknown``:
        nobody could look.
    :param jobs: open jobs by what became of them; ``uploads``, ``findings`` and old
        ``records`` likewise.
    :param catalog: what its catalog was told: ``table`` (created, updated, unchanged) and how many
        partitions were ``added``, ``updated`` and ``dropped``; empty: nothing.
    :param conflicts: of runs over partitions, how many are ``settled`` and ``unresolved``.
    :param person: what only a person can mend, a sentence each.
    :param again: what the next run tries again.
    :param notes: what is worth a look, and harms nobody.
    :param settled: what became of each job; in no report.
    """

    table: str
    kind: str = "table"
    jobs: dict[str, int] = field(default_factory=dict)
    uploads: dict[str, int] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    catalog: dict[str, Any] = field(default_factory=dict)
    conflicts: dict[str, int] = field(default_factory=dict)
    person: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    settled: list[SettledJob] = field(default_factory=list, repr=False)

    @staticmethod
    def of_unseen(table: str, error: ZeroRenameError) -> Upkeep:
        """Tell of a destination at which nobody could look."""
        done = Upkeep(table, kind="unknown")
        with done.step():
            raise error
        return done

    @property
    def is_empty_rest(self) -> bool:
        """Whether it is a directory in which nothing is to be looked after."""
        told = (self.jobs, self.uploads, self.findings, self.person, self.again, self.notes)
        return self.kind == "directory" and not any(told)

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
        members = asdict(self)
        del members["settled"]
        return {**members, **shown, "left_off": left_off}


def look_after(
    table: Table,
    place: Destination,
    order: PurgeOrder,
    register: Register | None = None,
    conflicts: ConflictOrder | None = None,
) -> Upkeep:
    """Recover, purge and verify a destination; of a table of this package also gc and index, of a
    Delta table the checkpoint that is due.

    :param table: opened at the destination's root, whatever lies there.
    :param register: tells a catalog what a table is, once its jobs are settled; returns what it
        told.
    :param conflicts: what to do about conflicts of runs; ``None``: nothing. They are looked for
        first: a purge and gc remove what tells of them.
    """
    done = Upkeep(table.root.url, place.kind)
    if conflicts is not None:
        with done.step():
            _settle_conflicts(table, place, conflicts, order.apply, done)
    with done.step():
        _purge(table, place, order, done)
    if place.is_table:
        _tend(table, order.apply, done, register)
    elif place.is_delta:
        _tend_delta(table, order.apply, done, register)
    elif place.is_s3a:
        with done.step():
            _verify_markers(table, done)
    return done


def _settle_conflicts(
    table: Table, place: Destination, order: ConflictOrder, apply: bool, done: Upkeep
) -> None:
    found = find_at(table, place)
    if order.policy is not None:
        found = [resolve_found(table, it, order.policy, apply, order.owner) for it in found]
    left = [it for one in found for it in one.unresolved]
    settled = sum(len(it.conflicts) for it in found) - len(left)
    counts = {"settled": settled, "unresolved": len(left)}
    done.conflicts = {name: number for name, number in counts.items() if number}
    told = done.person if order.fails or order.policy is not None else done.notes
    for it in left:
        why = it.settlement.error if it.settlement is not None else ""
        more = f"Not settled: {why}" if why else how_to_settle(table.root.url)
        told.append(escaped(f"conflict over {it.name}: {it} {more}"))
    told += [f"conflicts, not read: {escaped(why)}" for it in found for why in it.unread]
    done.notes += [f"conflicts: {escaped(why)}" for it in found for why in it.notes]


def _tend(table: Table, apply: bool, done: Upkeep, register: Register | None) -> None:
    with done.step():
        done.catalog = {} if register is None else register(table)
    # Where its first job has not committed, no table is there.
    with done.step(), suppress(TableNotFoundError):
        _gc(table, done, apply)
    with done.step(), suppress(TableNotFoundError):
        if apply and not table.write_index():
            why = "the index was not written: another process did, or the store refused"
            done.notes.append(why)
    with done.step(), suppress(TableNotFoundError):
        _verify(table, done)


def _tend_delta(table: Table, apply: bool, done: Upkeep, register: Register | None) -> None:
    delta = delta_at(table)
    with done.step():
        if why := why_left(delta):
            done.notes.append(escaped(why))
            return
    with done.step():
        done.catalog = {} if register is None else register(delta)
    with done.step():
        done.records = write_due_checkpoint(delta, apply)
    with done.step(), suppress(TableNotFoundError):  # Its first job has not committed.
        _sort_findings(delta.verify(), done)


def _purge(table: Table, place: Destination, order: PurgeOrder, done: Upkeep) -> None:
    report = purge_destination(table, place, order)
    done.settled = report.jobs
    done.jobs = dict(Counter(it.outcome for it in report.jobs))
    done.uploads = {str(action): number for action, number in report.counts.items()}
    for it in report.jobs:
        _sort(it, done)
    failed = [it for it in report.reported if it.action is PurgeAction.FAILED]
    done.again += [f"{escaped(it.key)}: {escaped(it.reason)}" for it in failed]


def _gc(table: Table, done: Upkeep, apply: bool) -> None:
    report = table.gc(apply=apply)
    counts = {"folded": report.folded, "condensed": report.condensed, "removed": report.removed}
    prefix = "" if apply else "would-be-"
    done.records = {f"{prefix}{name}": number for name, number in counts.items() if number}
    done.again += [f"{escaped(key)}: {cause}" for key, cause in report.failed.items()]


def _sort(job: SettledJob, done: Upkeep) -> None:
    said = f"{job.job}: {escaped(job.detail)}" if job.job else escaped(job.detail)
    if job.is_unsettled:
        (done.person if job.is_lasting else done.again).append(said)
    elif job.outcome == "left":
        done.notes.append(said)


def _verify_markers(table: Table, done: Upkeep) -> None:
    found = table.run(verify_markers(table.root))
    counts = {"missing": len(found.missing), "unread": len(found.unread)}
    done.findings = {name: number for name, number in counts.items() if number}
    done.notes += [f"a marker is not verified: {escaped(why)}" for why in found.unread]
    for it in found.missing:
        why = f"{it.marker} of job {it.job} names it, and nothing took its place"
        done.person.append(f"missing: {escaped(it.key)} ({escaped(why)})")


def _verify(table: Table, done: Upkeep) -> None:
    try:
        found = table.verify()
    except InvalidInputError as error:
        done.notes.append(f"not verified: {escaped(error.message)}")  # No heads: coordination none.
        return
    _sort_findings(found, done)


def _sort_findings(found: Sequence[Finding], done: Upkeep) -> None:
    done.findings = dict(Counter(str(it.kind) for it in found))
    for it in found:
        said = f"{it.kind}: {escaped(it.key)} ({escaped(it.detail)})"
        (done.notes if it.kind is FindingKind.UNNAMED else done.person).append(said)


def as_markdown(done: Sequence[Upkeep], applied: bool, residue: ResidueReport = NO_RESIDUE) -> str:
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
    lines += residue_lines(residue)
    columns = ("destination", "kind", "jobs", "uploads", "differences", "old records")
    lines += [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [
        f"| `{it.table}` | {it.kind} | {_counts(it.jobs)} | {_counts(it.uploads)} "
        f"| {_counts(it.findings)} | {_counts(it.records)} |"
        for it in done
    ]
    registered = [f"* `{it.table}`: {_registered(it)}" for it in done if it.catalog]
    lines += ["", *registered] if registered else []
    text = "\n".join(lines if done else [*lines[:2], NOTHING, "", *residue_lines(residue)])
    return text if len(text) <= _MARKDOWN else f"{text[:_MARKDOWN]}\n\n… the log has the rest"


def _registered(done: Upkeep) -> str:
    told = done.catalog
    counted = {name: told[name] for name in ("added", "updated", "dropped") if told[name]}
    partitions = f", partitions: {_counts(counted)}" if counted else ""
    return f"registered as {told['catalog']}, {told['table']}{partitions}"


def _counts(counted: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counted.items())) or "none"
