"""Symlink manifests of a whole table: begun, written anew, or given up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..commit.snapshot import Snapshot, take_snapshot
from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.found_table import (
    existing_table,
    find_table,
    is_changed,
    read_table,
    table_not_confirmed,
)
from ..commit.state.heads import list_heads, read_head
from ..commit.state.open_jobs import list_open, read_open
from ..commit.state.partition_files import read_commit
from ..commit.state.symlink_manifest import symlinks_of, write_symlinks
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError, InvalidInputError, UnfinishedCommitError, counted, first_few
from ..format.job_spec import Coordination, Readers
from ..format.layout import TableRoot
from ..format.records.decision import Decision
from ..format.records.table_record import TableRecord
from ..store.deletion import remove
from ..store.fast_root import is_fast
from ..store.listing import list_objects
from ..store.requests import All, Found, Get, Step

_TRIES = 8
#: Seconds after its Last-Modified in which a slow PUT may come to be seen.
_SLOW_PUT = 60.0


@dataclass(frozen=True)
class SymlinksReport:
    """What became of a table's symlink manifests.

    :param kept: whether each job keeps them from now on.
    :param partitions: how many partitions have one; ``written``: how many of them were written now,
        or removed.
    :param unaware: jobs that are open and may have begun before manifests were kept: what they
        change may be missing in them until the manifests are written again.
    """

    kept: bool
    partitions: int
    written: int
    unaware: tuple[str, ...] = ()


def keep_symlinks(context: Context) -> Step[SymlinksReport]:
    """As :meth:`.table.Table.keep_symlinks`."""
    yield from _note_kept(context)
    # Before the heads are listed, which hold what is done by now.
    unaware = yield from _unaware(context, True)
    heads = yield from list_heads(context)
    states = yield from All(tuple(read_head(context, heads[name].slot) for name in heads))
    jobs = sorted({job for state in states for job in state.head.decisions})
    found = yield from All(tuple(or_damage(read_commit(context, job)) for job in jobs))
    known = tuple(decided for decided in found if not isinstance(decided, DamagedError))
    names = [state.slot.name for state in states if state.head.version]
    written = yield from All(tuple(write_symlinks(context, name, known) for name in names))
    return SymlinksReport(True, len(names), sum(written), unaware)


def drop_symlinks(context: Context, apply: bool) -> Step[SymlinksReport]:
    """As :meth:`.table.Table.drop_symlinks`."""
    table = yield from read_table(context)
    if not apply:
        listing = yield from list_objects(context.root.symlinks_prefix)
        return SymlinksReport(table.symlinks, len(listing.objects), 0)
    yield from _note_given_up(context)
    unaware = yield from _unaware(context, False)
    listing = yield from list_objects(context.root.symlinks_prefix)
    failed = yield from remove((item.key, None) for item in listing.objects)
    if failed:
        key, cause = next(iter(failed.items()))
        raise UnfinishedCommitError(
            f"{counted(len(failed), 'symlink manifest')} could not be removed ({cause}); no job "
            "keeps such.",
            key=key,
            remedy="Run it again.",
        )
    return SymlinksReport(False, 0, len(listing.objects), unaware)


def _check(context: Context, table: TableRecord) -> None:
    if table.coordination is Coordination.NONE:
        raise InvalidInputError(
            "A table of coordination=none has no heads, which symlink manifests are made of. "
            "Nothing was changed.",
            remedy="Let the engines read the table's folders.",
        )
    if table.unadopted or table.adopting:
        raise InvalidInputError(
            "The table has files from before it that no head names, so no manifest could name "
            "them. Nothing was changed.",
            remedy=f"Adopt them first: zero-rename adopt {context.root.url} --apply",
        )


def refuse_symlinks(root: TableRoot, table: TableRecord) -> None:
    """Refuse a data root for a table that keeps symlink manifests: these name files by where they
    lie in its own bucket.

    :raises InvalidInputError: it does.
    """
    if table.symlinks:
        raise _not_durable(root)


def _not_durable(root: TableRoot) -> InvalidInputError:
    return InvalidInputError(
        "Symlink manifests name files in the table's own bucket, and files of a table with a data "
        "root lie elsewhere first. Nothing was changed.",
        remedy="Have either: take the data root away and copy what lies there (zero-rename "
        f"data-root {root.url} none --apply, zero-rename checkpoint {root.url} --apply), or keep "
        f"no manifests (zero-rename catalog manifests {root.url} --off --apply).",
    )


def _note_kept(context: Context) -> Step[None]:
    """Note that jobs keep manifests in the very record that says where the table's files lie: where
    another changes it meanwhile, all is looked at again.

    Who may yet bring files that lie elsewhere has opened before a data root was taken away, or
    writes the record anew while it is open (:mod:`.commit.brought_back`). So the record is read
    first, then the open jobs, then what the heads name.

    :raises InvalidInputError: files lie elsewhere, or may come to.
    """
    for _ in range(_TRIES):
        found = yield from existing_table(context)
        table = found.record
        _check(context, table)
        if table.data_root is not None:
            raise _not_durable(context.root)
        if table.former_roots:
            yield from _refuse_undecided(context, table)
        if table.former_roots or (table.readers is Readers.HEADS and not table.symlinks):
            files = (yield from take_snapshot(context)).files
            if any(is_fast(file.key) for file in files):
                raise _not_durable(context.root)
        if table.symlinks or (yield from is_changed(context, found, symlinks=True)):
            return
    raise table_not_confirmed(context)


def _refuse_undecided(context: Context, table: TableRecord) -> Step[None]:
    """Refuse to go on beside jobs that may yet bring files of a former data root.

    :raises InvalidInputError: one is open.
    """
    opened = yield from _open_jobs(context)
    waiting = [it.job for it in opened if it.decision is None and it.is_older]
    if waiting:
        roots = first_few([str(root) for root in table.former_roots])
        raise InvalidInputError(
            f"{counted(len(waiting), 'open job')} may yet bring files that lie in a former data "
            f"root ({roots}), and symlink manifests name files in the table's own bucket: "
            f"{first_few(waiting)}. Nothing was changed.",
            job=waiting[0],
            remedy="Run it again when they have ended; one that has died is ended by "
            f"zero-rename recover {context.root.url} --apply.",
        )


def _note_given_up(context: Context) -> Step[None]:
    for _ in range(_TRIES):
        found = yield from find_table(context)
        if found is None or not found.record.symlinks:
            return
        if (yield from is_changed(context, found, symlinks=False)):
            return
    raise table_not_confirmed(context)


def _unaware(context: Context, symlinks: bool) -> Step[tuple[str, ...]]:
    """The open jobs that may have read the table's record before it said whether symlink manifests
    are kept: those whose decision says otherwise, and those without one that may have opened
    before. Whoever asks again, after one that died or while those jobs are at work, is told the
    same."""
    opened = yield from _open_jobs(context)
    return tuple(it.job for it in opened if it.is_unaware(symlinks))


@dataclass(frozen=True)
class _JobAtWork:
    """A job that is not wholly done.

    :param decision: ``None``: it has none, or none that can be read.
    :param is_older: whether it may have opened before the table's record was last written.
    """

    job: str
    decision: Decision | None
    is_older: bool

    def is_unaware(self, symlinks: bool) -> bool:
        """Whether it may do otherwise than the table's record says."""
        if self.decision is None:
            return self.is_older
        return self.decision.is_commit and self.decision.symlinks is not symlinks


def _open_jobs(context: Context) -> Step[list[_JobAtWork]]:
    """The open jobs, by the table's record as it is now: a job writes its open record before it
    reads that one."""
    found = yield from Get(context.root.table_key)
    noted = found.last_modified if isinstance(found, Found) else math.inf
    jobs = sorted((yield from list_open(context)))
    opened = yield from All(tuple(_open_job(context, job, noted) for job in jobs))
    return [it for it in opened if it is not None]


def _open_job(context: Context, job: str, noted: float) -> Step[_JobAtWork | None]:
    entry = yield from read_open(context, job)
    if entry is None:
        return None  # It is done.
    decided = yield from or_damage(read_decision(context, job))
    if isinstance(decided, Decided):
        return _JobAtWork(job, decided.decision, is_older=True)
    if isinstance(decided, DamagedError) or entry.record is None:
        return _JobAtWork(job, None, is_older=True)
    opened_at, _ = entry.order
    return _JobAtWork(job, None, opened_at <= noted + _SLOW_PUT)


def stale_symlinks(
    context: Context, before: Snapshot, after: Snapshot
) -> Step[Iterator[tuple[str, str]]]:
    """Partition and key of each manifest that says what neither of two states says, or names files
    that lie in a fast root.

    :param before: a state from before the manifests are read; ``after``: one from after that.
    """
    names = sorted(before.versions)
    keys = [context.root.symlink_key(name) for name in names]
    found = yield from All(tuple(Get(key) for key in keys))
    texts = [
        {
            name: symlinks_of(context.root, files)
            for name, files in state.by_partition().items()
            if not any(is_fast(file.key) for file in files)
        }
        for state in (before, after)
    ]
    return (
        (name, key)
        for name, key, there in zip(names, keys, found, strict=True)
        if not isinstance(there, Found) or there.body not in [text.get(name, b"") for text in texts]
    )
