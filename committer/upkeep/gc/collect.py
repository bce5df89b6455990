"""Garbage collection: old decisions are folded and condensed, unneeded records removed.

The protocol demands this order: list decisions and manifests, then the open jobs, then read the
heads (docs/protocol.md, *Records that stay small*).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...commit.index.read_index import find_old_parts
from ...commit.index.write_index import look_after_index
from ...commit.state.context import Context
from ...commit.state.found_table import read_table
from ...commit.state.old_records import (
    KEPT_FOR,
    OldRecord,
    find_aged,
    free_manifests,
    read_heads,
    sizes,
)
from ...commit.state.open_jobs import list_open
from ...errors import DamagedError, escaped
from ...format.job_spec import Coordination
from ...format.layout import job_of_part, jobs_on_record
from ...format.records.codec import decode, encode
from ...format.records.head import JobId
from ...format.records.marks import Moment
from ...store.deletion import remove
from ...store.listing import Listing, list_objects
from ...store.requests import LIST_BYTES, Absent, All, Get, ListedObject, Put, Step
from .condense import Condensing, HeadsKnown, condense
from .fold_heads import fold_heads


@dataclass(frozen=True)
class GcReport:
    """Counts of what gc did, or would do.

    :param folded: heads whose old decisions were folded into a manifest.
    :param condensed: decisions that were condensed to a few bytes.
    :param removed: records that were removed. ``failed`` has the keys of those that could not be
        removed, each with the reason.
    :param saved: bytes saved by condensed decisions and removed records.
    :param left: old decisions that are kept whole, since something still needs them.
    :param damaged: partitions whose heads cannot be read, each with the error. It is not known what
        such a head names, so decisions about its partition are kept whole.
    """

    folded: int
    condensed: int
    removed: int
    saved: int
    left: int
    failed: Mapping[str, str]
    damaged: Mapping[str, str]


def gc(context: Context, older_than: float = KEPT_FOR, apply: bool = False) -> Step[GcReport]:
    """Fold and condense old decisions and remove old records (:meth:`.table.Table.gc`)."""
    table = yield from read_table(context)
    context = context.of(table)
    if table.coordination is Coordination.NONE:
        old = yield from find_aged(context, older_than)
        return (yield from _removed(GcReport(0, 0, 0, 0, 0, {}, {}), old, apply))
    jobs, manifests = yield from All(
        (list_objects(context.root.decisions_prefix), list_objects(context.root.manifests_prefix))
    )
    cutoff = jobs.date - older_than
    still_open = yield from list_open(context)
    heads = yield from read_heads(context)
    dated = _dated(context, jobs)
    old_jobs = {job for job, item in dated.items() if item.last_modified < cutoff}
    after = yield from fold_heads(context, heads, old_jobs, cutoff, apply)
    known = HeadsKnown(after.states, cutoff)
    note = yield from read_note(context)
    asked = [job for job in old_jobs if dated[job].last_modified >= note.before or job in note.left]
    free = set(asked) - still_open - known.named
    latest_first = sorted(free, key=lambda job: (-dated[job].last_modified, job))
    condensing = yield from condense(context, latest_first, known, apply)
    left = tuple(sorted(set(asked).difference(condensing.done)))
    report = GcReport(
        after.folded,
        len(condensing.condensed),
        0,
        condensing.saved,
        len(left),
        {},
        {name: escaped(str(error)) for name, error in heads.damaged.items()},
    )
    aged, parts, free_lists = yield from All(
        (
            find_aged(context, older_than),
            find_old_parts(context, older_than),
            free_manifests(manifests, heads, older_than),
        )
    )
    orphans = _parts_of_condensed(context, jobs, condensing)
    report = yield from _removed(report, [*aged, *parts, *free_lists, *orphans], apply)
    if apply and asked:
        # Last, so that the next gc reads again what this one has not completed.
        failed = {job_of_part(context.root.decisions_prefix, key) for key in report.failed}
        # Jobs that a gc of a lower age has kept whole, and that are too young for this one.
        young = set(note.left).intersection(dated).difference(old_jobs)
        again = sorted({*left, *young, *(job for job in failed if job is not None)})
        yield from write_note(context, max(cutoff, note.before), tuple(again))
    if apply and after.folded:
        yield from look_after_index(context, "the records are folded")
    return report


def _dated(context: Context, jobs: Listing) -> dict[str, ListedObject]:
    """Return the listed decisions by job."""
    prefix = context.root.decisions_prefix
    items = {item.key: item for item in jobs.objects}
    return {
        job: items[context.root.decision_key(job)] for job in jobs_on_record(prefix, items.keys())
    }


def _parts_of_condensed(context: Context, jobs: Listing, condensing: Condensing) -> list[OldRecord]:
    """Return parts that no decision names any more: their job's is condensed, or an abort."""
    prefix, done = context.root.decisions_prefix, set(condensing.done)
    return [
        OldRecord(item, "a part of a decision that is condensed")
        for item in jobs.objects
        if job_of_part(prefix, item.key) in done
    ]


def _removed(report: GcReport, records: list[OldRecord], apply: bool) -> Step[GcReport]:
    failed: Mapping[str, str] = {}
    if apply:
        failed = yield from remove((it.item.key, it.item.etag) for it in records)
    gone = [it for it in records if it.item.key not in failed]
    return replace(report, removed=len(gone), saved=report.saved + sizes(gone), failed=failed)


@dataclass(frozen=True)
class LookedAt:
    """A note of the decisions that gc need not read again. If it is missing, gc reads all of them,
    with the same result.

    :param before: decisions written before this time are condensed, or say *abort*, except those
        in ``left``.
    :param left: jobs whose decisions must be read again.
    """

    write_id: str
    before: Moment
    left: tuple[JobId, ...]

    def encode(self) -> bytes:
        return encode("gc", self.write_id, self)


def read_note(context: Context) -> Step[LookedAt]:
    """Read the note; return an empty one if it is missing or damaged."""
    found = yield from Get(context.root.gc_key, most=LIST_BYTES)
    if not isinstance(found, Absent):
        try:
            return decode(found.body, "gc", found.key).read(LookedAt)
        except DamagedError:
            pass
    return LookedAt("", 0.0, ())


def write_note(context: Context, before: float, left: tuple[str, ...]) -> Step[None]:
    """Overwrite the note without a condition: of two that race, either is correct."""
    note = LookedAt(context.write_id(), before, left)
    yield from Put(context.root.gc_key, note.encode())
