"""Plan of a purge: whose each upload is, and whether anybody may still complete it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile

from ..commit.close import list_uploads
from ..commit.state.context import Context
from ..commit.state.decide import read_decision
from ..commit.state.open_jobs import list_open
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError
from ..format.layout import TableRoot, is_hidden, job_in_key, log_job_in_key
from ..format.records.decision import Verdict
from ..store.requests import All, Found, Head, ListedUpload, Step


class Whose(StrEnum):
    """Of which job an upload is: one of this table, one that it has no record of, one of a table
    below it, or of none that this package made."""

    OURS = "ours"
    UNKNOWN = "unknown"
    NESTED = "nested"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class Judged:
    """An upload, and whether nobody will complete it.

    :param job: the job id in its key; of a foreign one, the job that is known to need it.
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
    """Uploads that are aborted though no record of this table says so.

    :param foreign_older_than: foreign ones initiated so many seconds ago; ``None``: none.
    :param jobs: those of jobs of which the table has no record.
    """

    foreign_older_than: float | None = None
    jobs: Collection[str] = frozenset()


#: Seconds that no probe lasts, however often a store fails to answer it.
_PROBE_LASTS = 3600.0


@dataclass(frozen=True)
class Fate:
    """What is known of a job without an open record.

    :param verdict: ``None`` where its decision cannot be read.
    :param named: (key, UploadId) of the uploads that its commit names.
    """

    verdict: Verdict | None
    named: frozenset[tuple[str, str]] = frozenset()


def judge_uploads(context: Context, wanted: Wanted) -> Step[list[Judged]]:
    """Judge every upload below a table, by its job's records; a foreign one by its age.

    Changes nothing.
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
    """Judge uploads that a listing has just shown, in their order.

    The open records are listed here, after the uploads: a job that opens in between has no upload
    among them. Changes nothing in the store.

    :param fates: by job, ``None`` for one without records; what is found out is added to it. A job
        that is closed stays so, and its decision with it.
    :param folders: whether a table's record lies there; what is found out is added to it.
    """
    still_open = yield from list_open(context)
    named = {job_in_key(upload.key) for upload in uploads}
    jobs = {job for job in named if job is not None and job not in still_open}
    asked_for = sorted(jobs.difference(fates))
    found = yield from All(tuple(_fate(context, job) for job in asked_for))
    fates.update(zip(asked_for, found, strict=True))
    owned = {*still_open, *(job for job in jobs if fates[job] is not None)}
    unowned = [upload.key for upload in uploads if job_in_key(upload.key) not in owned]
    # The age of an upload is told by the store's clock, as when it was initiated.
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
    """The tables below this one in which some of ``keys`` lie."""
    prefix = f"{context.root.prefix}/"
    folders = {folder for key in keys for folder in folders_of(key) if folder.startswith(prefix)}
    yield from look_for_tables(context.root.bucket, folders, known)
    return [TableRoot(context.root.bucket, folder) for folder in sorted(folders) if known[folder]]


def folders_of(key: str) -> list[str]:
    """The folders that a key lies in and that may be tables, innermost first."""
    names = list(takewhile(lambda name: not is_hidden(name), key.split("/")[:-1]))
    return ["/".join(names[:depth]) for depth in range(len(names), 0, -1)]


def look_for_tables(bucket: str, folders: Iterable[str], known: dict[str, bool]) -> Step[None]:
    """Add to ``known`` whether a table's record lies in each of ``folders``: one request a folder
    that is not known."""
    asked = sorted(set(folders).difference(known))
    found = yield from All(tuple(Head(TableRoot(bucket, folder).table_key) for folder in asked))
    known.update((folder, isinstance(it, Found)) for folder, it in zip(asked, found, strict=True))


@dataclass(frozen=True)
class _Judge:
    """What is known when uploads are judged.

    :param fates: by job without an open record.
    :param now: the store's time; ``None`` where nothing is judged by age.
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
        """Whether to abort an upload of a job of this table, and why; ``None``: of no such job."""
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
        """An upload with a job id of this package is never foreign: it may be committed in a
        table of which nothing is known here."""
        if job in self.wanted.jobs:
            return True, "of a job that this table has no record of, and that was asked for"
        why = "another table's, or its records were deleted"
        return False, f"of a job that this table has no record of: {why}"

    def _foreign(self, upload: ListedUpload) -> tuple[bool, str]:
        least = self.wanted.foreign_older_than
        if least is None or self.now is None:
            return False, "foreign: left unless foreign uploads are asked for, by age"
        age = self.now - upload.initiated
        if not age >= least:  # Nothing is as old as a number that is none.
            return False, f"foreign and {age:.0f} s old, younger than {least:.0f} s"
        return True, f"foreign and {age:.0f} s old"
