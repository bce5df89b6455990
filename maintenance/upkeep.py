"""Maintenance of one destination, step by step, and a page about all destinations.

The findings are sorted into those that need action, those that the next run tries again, and notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..committer.errors import InvalidInputError, TableNotFoundError, ZeroRenameError, escaped
from ..committer.store.deletion import is_denied
from ..committer.upkeep.purging.purge import PurgeAction
from ..committer.upkeep.recovery import is_lasting
from ..committer.upkeep.verify import Finding, FindingKind
from ..s3a.verification.markers import named_by_markers, verify_markers
from ..tables.table_at import delta_at
from .conflicts import ConflictOrder, find_at, how_to_settle, resolve_found
from .delta import why_left, write_due_checkpoint, write_lost_reports
from .destinations import NOTHING
from .purging import PurgeOrder, SettledJob, purge_destination
from .residue import NO_RESIDUE, ResidueReport, residue_lines

if TYPE_CHECKING:
    from ..committer import Table
    from ..tables import DeltaTable
    from .destinations import Destination

    #: Registers a table's present state in a catalog; returns the report of that.
    Register = Callable[[Table | DeltaTable], dict[str, Any]]

#: The most lines of one table and kind in a summary; the log has all.
_LINES = 20
#: The most characters of a Markdown summary: it is stored in Airflow's database.
_MARKDOWN = 20_000


@dataclass
class Upkeep:
    """The report of the maintenance of one destination.

    :param kind: ``table``, ``delta``, ``s3a``, ``table and s3a`` or ``directory``; ``unknown``: it
        could not be read.
    :param jobs: number of open jobs by outcome; ``uploads``, ``findings`` and old ``records``
        likewise.
    :param catalog: the report of the registration in a catalog: ``table`` (created, updated,
        unchanged) and how many partitions were ``added``, ``updated`` and ``dropped``; empty: there
        was no registration.
    :param conflicts: how many conflicts of runs are ``settled`` and ``unresolved``.
    :param person: findings that need a person's action, a sentence each.
    :param again: failures that the next run tries again.
    :param notes: findings that do no harm, and need no action.
    :param settled: the outcome of each job; not part of a report.
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
        """Return the report about a destination that could not be read."""
        done = Upkeep(table, kind="unknown")
        with done.step():
            raise error
        return done

    @property
    def is_empty_rest(self) -> bool:
        """True for a directory in which there was nothing to maintain."""
        told = (self.jobs, self.uploads, self.findings, self.person, self.again, self.notes)
        return self.kind == "directory" and not any(told)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Put the error of a step into the report, so that the next steps are still done."""
        try:
            yield
        except ZeroRenameError as error:
            self.add_problem(escaped(str(error)), is_lasting(error))

    def add_problem(self, text: str, is_lasting: bool) -> None:
        """Add a problem for a person, if it is lasting; otherwise one that the next run may end."""
        (self.person if is_lasting else self.again).append(text)

    def capped(self) -> dict[str, Any]:
        """Return the report as a dict for XCom, of limited size."""
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
    """Recover, purge and verify a destination. In a table of this package also run gc and write the
    index; in a Delta table write the checkpoint that is due.

    :param table: opened at the destination's root; the kind does not matter.
    :param register: registers a table in a catalog, once its jobs are recovered; returns the report
        of that.
    :param conflicts: what to do about conflicts of runs; ``None``: nothing. The search for them
        comes first, because a purge and gc remove records that show them.
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
        _tend_delta(table, place, order.apply, done, register)
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
    # If its first job has not committed, there is no table yet.
    with done.step(), suppress(TableNotFoundError):
        _gc(table, done, apply)
    with done.step(), suppress(TableNotFoundError):
        if apply and not table.write_index():
            why = "the index was not written: another process did, or the store refused"
            done.notes.append(why)
    with done.step(), suppress(TableNotFoundError):
        _verify(table, done)


def _tend_delta(
    table: Table, place: Destination, apply: bool, done: Upkeep, register: Register | None
) -> None:
    delta = delta_at(table)
    with done.step():
        if why := why_left(delta):
            done.notes.append(escaped(why))
            return
    with done.step():
        done.catalog = {} if register is None else register(delta)
    with done.step():
        done.records = write_due_checkpoint(delta, apply)
    with done.step(), suppress(TableNotFoundError):
        done.records |= write_lost_reports(delta, apply)
    with done.step(), suppress(TableNotFoundError):  # Its first job has not committed.
        _verify_delta(table, delta, place, done)


def _verify_delta(table: Table, delta: DeltaTable, place: Destination, done: Upkeep) -> None:
    """Verify a Delta table. A file that no entry names needs action if a job of Hadoop's committers
    has committed it: it was at work as the directory was adopted, and no reader sees its rows."""
    found = delta.verify()
    unnamed = [it.key for it in found if it.kind is FindingKind.UNNAMED]
    asks = place.is_s3a and bool(unnamed)
    lost = table.run(named_by_markers(table.root, unnamed)) if asks else frozenset[str]()
    _sort_findings(found, done, lost)


def _purge(table: Table, place: Destination, order: PurgeOrder, done: Upkeep) -> None:
    report = purge_destination(table, place, order)
    done.settled = report.jobs
    done.jobs = dict(Counter(it.outcome for it in report.jobs))
    done.uploads = {str(action): number for action, number in report.counts.items()}
    for it in report.jobs:
        _sort(it, done)
    for it in (it for it in report.reported if it.action is PurgeAction.FAILED):
        done.add_problem(f"{escaped(it.key)}: {escaped(it.reason)}", it.is_denied)


def _gc(table: Table, done: Upkeep, apply: bool) -> None:
    report = table.gc(apply=apply)
    counts = {"folded": report.folded, "condensed": report.condensed, "removed": report.removed}
    prefix = "" if apply else "would-be-"
    done.records = {f"{prefix}{name}": number for name, number in counts.items() if number}
    for key, cause in report.failed.items():
        text = f"{escaped(key)}: it could not be removed ({cause})"
        done.add_problem(text, is_denied(cause))


def _sort(job: SettledJob, done: Upkeep) -> None:
    said = f"{job.job}: {escaped(job.detail)}" if job.job else escaped(job.detail)
    if job.is_unsettled:
        done.add_problem(said, job.is_lasting)
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


def _sort_findings(
    found: Sequence[Finding], done: Upkeep, lost: Collection[str] = frozenset()
) -> None:
    """Sort findings into a report.

    :param lost: keys of files that need action though they are only unnamed.
    """
    done.findings = dict(Counter(str(it.kind) for it in found))
    for it in found:
        said = f"{it.kind}: {escaped(it.key)} ({escaped(it.detail)})"
        is_note = it.kind is FindingKind.UNNAMED and it.key not in lost
        (done.notes if is_note else done.person).append(said)


def as_markdown(done: Sequence[Upkeep], applied: bool, residue: ResidueReport = NO_RESIDUE) -> str:
    """Return a page about all destinations in Markdown. Findings that need action come first."""
    lines = ["# Maintenance" if applied else "# Maintenance, reported only (apply=False)", ""]
    titles = {"person": "Needs action", "again": "Tried again by the next run", "notes": "Notes"}
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
