"""Plan of a purge: the owner of each upload, and whether a job may still complete it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile

from ...commit.close import list_uploads
from ...commit.state.context import Context
from ...commit.state.decide import read_decision
from ...commit.state.open_jobs import list_open
from ...commit.state.tolerance import or_damage
from ...errors import DamagedError
from ...format.layout import TableRoot, is_hidden, job_in_key, log_job_in_key
from ...format.records.decision import Verdict
from ...store.requests import All, Found, Head, ListedUpload, Step


class Whose(StrEnum):
    """The owner of an upload: a job of this table; an unknown job, of which the table has no
    record; a job of a nested table; or foreign, made by another program."""

    OURS = "ours"
    UNKNOWN = "unknown"
    NESTED = "nested"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class Judged:
    """An upload, and whether to abort it.

    :param job: the job id in its key; for a foreign upload, the job that is known to need it.
    :param abort: whether to abort it; ``reason`` says why or why not.
    :param is_open: its job has an open record here.
    """

    upload: ListedUpload
    job: str | None
    abort: bool
    reason: str
    whose: Whose
    is_open: bool = False


@dataclass(frozen=True)
class Wanted:
    """Uploads to abort at the caller's request, beyond those that the table's records allow.

    :param foreign_older_than: foreign uploads that are at least so many seconds old; ``None``:
        none.
    :param jobs: unknown jobs whose uploads are aborted.
    """

    foreign_older_than: float | None = None
    jobs: Collection[str] = frozenset()


#: Seconds within which every probe has ended, however often a store fails to answer it.
_PROBE_LASTS = 3600.0


@dataclass(frozen=True)
class Fate:
    """The decision of a job without an open record.

    :param verdict: its verdict; ``None`` if the decision cannot be read.
    :param named: (key, UploadId) of the uploads that a commit names.
    """

    verdict: Verdict | None
    named: frozenset[tuple[str, str]] = frozenset()


def judge_uploads(context: Context, wanted: Wanted) -> Step[list[Judged]]:
    """Decide for every upload below a table whether to abort it: by the records of its job, or by
    its age if it is foreign. Changes nothing.
    """
    uploads = yield from list_uploads(context)
    return (yield from judge_page(context, wanted, uploads, {}, {}))


def judge_page(
    context: Context,
    wanted: Wanted,
    uploads: Sequence[ListedUpload],
    fates: dict[str, Fate | None],
    folders: dict[str, bool],
) -> Step[list[Judged]]:
    """Judge uploads that a listing has just shown, and return the judgements in the same order.

    The open records are listed here, after the uploads: a job that opens in between has no upload
    among them. Changes nothing in the store.

    :param fates: decisions by job, ``None`` for a job without records. Decisions that are read here
        are added: a closed job stays closed, and its decision does not change.
    :param folders: by folder, whether it has a table's record. Folders that are checked here are
        added.
    """
    still_open = yield from list_open(context)
    named = {job_in_key(upload.key) for upload in uploads}
    jobs = {job for job in named if job is not None and job not in still_open}
    asked_for = sorted(jobs.difference(fates))
    found = yield from All(tuple(_fate(context, job) for job in asked_for))
    fates.update(zip(asked_for, found, strict=True))
    owned = {*still_open, *(job for job in jobs if fates[job] is not None)}
    unowned = [upload.key for upload in uploads if job_in_key(upload.key) not in owned]
    # Ages are measured by the store's clock, since it dates the start of an upload, too.
    asked = None
    probed = any(upload.key.startswith(context.root.probe_key("")) for upload in uploads)
    if wanted.foreign_older_than is not None or (probed and still_open):
        asked = yield from Head(context.root.table_key)
    judge = _Judge(
        context.root,
        wanted,
        still_open,
        fates,
        now=None if asked is None else asked.date,
        nested=(yield from nested_tables(context, unowned, folders)),
    )
    return [judge.judged(upload) for upload in uploads]


def _fate(context: Context, job: str) -> Step[Fate | None]:
    decided = yield from or_damage(read_decision(context, job))
    if decided is None:
        return None
    if isinstance(decided, DamagedError):
        return Fate(None)
    return Fate(decided.decision.verdict, frozenset(decided.decision.upload_ids))


def nested_tables(
    context: Context, keys: Iterable[str], known: dict[str, bool]
) -> Step[list[TableRoot]]:
    """Find the tables below this one that contain some of ``keys``."""
    prefix = f"{context.root.prefix}/"
    folders = {folder for key in keys for folder in folders_of(key) if folder.startswith(prefix)}
    yield from look_for_tables(context.root.bucket, folders, known)
    return [TableRoot(context.root.bucket, folder) for folder in sorted(folders) if known[folder]]


def folders_of(key: str) -> list[str]:
    """Return the folders above a key that can be the root of a table, innermost first."""
    names = list(takewhile(lambda name: not is_hidden(name), key.split("/")[:-1]))
    return ["/".join(names[:depth]) for depth in range(len(names), 0, -1)]


def look_for_tables(bucket: str, folders: Iterable[str], known: dict[str, bool]) -> Step[None]:
    """Add to ``known`` whether each of ``folders`` has a table's record: one request for each
    folder that is not in it yet."""
    asked = sorted(set(folders).difference(known))
    found = yield from All(tuple(Head(TableRoot(bucket, folder).table_key) for folder in asked))
    known.update((folder, isinstance(it, Found)) for folder, it in zip(asked, found, strict=True))


@dataclass(frozen=True)
class _Judge:
    """Judge of uploads, with the records that were read for it.

    :param fates: the decisions of jobs without an open record.
    :param now: the store's time; ``None`` if no upload is judged by its age.
    """

    root: TableRoot
    wanted: Wanted
    still_open: Collection[str]
    fates: Mapping[str, Fate | None]
    now: float | None
    nested: list[TableRoot] = field(default_factory=list)

    def judged(self, upload: ListedUpload) -> Judged:
        job = job_in_key(upload.key)
        table = next((t for t in self.nested if upload.key.startswith(f"{t.prefix}/")), None)
        ours = self._ours(upload, job)
        if ours is not None:
            return Judged(upload, job, *ours, Whose.OURS, job in self.still_open)
        if table is not None:
            reason = f"of the table {table.url}, which lies below this one"
            return Judged(upload, job, False, reason, Whose.NESTED)
        if job is not None:
            return Judged(upload, job, *self._of_unknown_job(job), Whose.UNKNOWN)
        if (in_log := log_job_in_key(upload.key)) is not None:
            reason = f"of a Delta table below this one, {in_log[0]}"
            return Judged(upload, in_log[1], False, reason, Whose.NESTED)
        return Judged(upload, job, *self._foreign(upload), Whose.FOREIGN)

    def _ours(self, upload: ListedUpload, job: str | None) -> tuple[bool, str] | None:
        """Return whether to abort an upload of this table's jobs or probes, and why; ``None``: it
        belongs to neither."""
        if upload.key.startswith(self.root.probe_key("")):
            # A probe runs while its job is open, and its upload names no job.
            age = 0.0 if self.now is None else self.now - upload.initiated
            if self.still_open and age < _PROBE_LASTS:
                return False, "a probe's, and a job is open"
            return True, "left by a probe"
        if job in self.still_open:
            return False, "its job is open"
        fate = self.fates.get(job or "")
        if fate is None:
            return None
        if fate.verdict is None:
            return False, "its job's decision cannot be read"
        if (upload.key, upload.upload_id) in fate.named:
            return False, "the committed decision names it"
        return True, f"its job is closed ({fate.verdict}) and its decision does not name it"

    def _of_unknown_job(self, job: str) -> tuple[bool, str]:
        """Return whether to abort an upload of an unknown job, and why. It is never foreign: the
        job may be committed in a table that is not known here."""
        if job in self.wanted.jobs:
            return True, "of a job that this table has no record of, and that was asked for"
        why = "another table's, or its records were deleted"
        return False, f"of a job that this table has no record of: {why}"

    def _foreign(self, upload: ListedUpload) -> tuple[bool, str]:
        least = self.wanted.foreign_older_than
        if least is None or self.now is None:
            return False, "foreign: left unless foreign uploads are asked for, by age"
        age = self.now - upload.initiated
        if not age >= least:  # Written so that NaN, as an age limit, aborts nothing.
            return False, f"foreign and {age:.0f} s old, younger than {least:.0f} s"
        return True, f"foreign and {age:.0f} s old"
