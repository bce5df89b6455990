"""Plan of a purge: whose each upload is, and whether anybody may still complete it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile

from ..errors import DamagedError
from ..layout import TableRoot, is_hidden, job_in_key
from ..protocol.close import list_uploads
from ..protocol.open import list_open
from ..s3.requests import All, Found, Head, ListedUpload, Step
from ..state.context import Context
from ..state.decide import Decided, read_decision
from ..state.tolerance import or_damage


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

    :param job: the job id in its key.
    :param abort: whether to abort it; ``reason`` says why or why not.
    """

    upload: ListedUpload
    job: str | None
    abort: bool
    reason: str
    whose: Whose


@dataclass(frozen=True)
class Wanted:
    """Uploads that are aborted though no record of this table says so.

    :param foreign_older_than: foreign ones initiated so many seconds ago; ``None``: none.
    :param jobs: those of jobs of which the table has no record.
    """

    foreign_older_than: float | None = None
    jobs: Collection[str] = frozenset()


def judge_uploads(context: Context, wanted: Wanted) -> Step[list[Judged]]:
    """Judge every upload below a table, by its job's records; a foreign one by its age.

    Changes nothing. The uploads are listed first, then the open records: a job that opens in
    between has no upload listed.
    """
    uploads = yield from list_uploads(context)
    still_open = yield from list_open(context)
    named = {job_in_key(upload.key) for upload in uploads}
    jobs = sorted(job for job in named if job is not None and job not in still_open)
    found = yield All(tuple(or_damage(read_decision(context, job)) for job in jobs))
    decisions = dict(zip(jobs, found, strict=True))
    owned = {*still_open, *(job for job in jobs if decisions[job] is not None)}
    unowned = [upload.key for upload in uploads if job_in_key(upload.key) not in owned]
    # The age of a foreign upload is told by the store's clock, as when it was initiated.
    asked = None
    if wanted.foreign_older_than is not None:
        asked = yield Head(context.root.table_key)
    judge = _Judge(
        context.root,
        wanted,
        still_open,
        decisions,
        now=None if asked is None else asked.date,
        nested=(yield from nested_tables(context, unowned)),
    )
    return [judge.judged(upload) for upload in uploads]


def nested_tables(context: Context, keys: Iterable[str]) -> Step[list[TableRoot]]:
    """The tables below this one in which some of ``keys`` lie: one request a folder."""
    start = len(context.root.prefix) + 1
    folders = set()
    for key in keys:
        inside = list(takewhile(lambda name: not is_hidden(name), key[start:].split("/")[:-1]))
        folders |= {"/".join(inside[:depth]) for depth in range(1, len(inside) + 1)}
    below = [
        TableRoot(context.root.bucket, f"{context.root.prefix}/{folder}")
        for folder in sorted(folders)
    ]
    found = yield All(tuple(Head(root.table_key) for root in below))
    return [root for root, look in zip(below, found, strict=True) if isinstance(look, Found)]


@dataclass(frozen=True)
class _Judge:
    """What is known when uploads are judged.

    :param decisions: by job without an open record.
    :param now: the store's time; ``None`` where nothing is aborted by age.
    """

    root: TableRoot
    wanted: Wanted
    still_open: Collection[str]
    decisions: Mapping[str, Decided | DamagedError | None]
    now: float | None
    nested: list[TableRoot] = field(default_factory=list)

    def judged(self, upload: ListedUpload) -> Judged:
        job = job_in_key(upload.key)
        table = next((t for t in self.nested if upload.key.startswith(f"{t.prefix}/")), None)
        ours = self._ours(upload, job)
        if ours is not None:
            return Judged(upload, job, *ours, Whose.OURS)
        if table is not None:
            reason = f"of the table {table.url}, which lies below this one"
            return Judged(upload, job, False, reason, Whose.NESTED)
        if job is not None:
            return Judged(upload, job, *self._of_unknown_job(job), Whose.UNKNOWN)
        return Judged(upload, job, *self._foreign(upload), Whose.FOREIGN)

    def _ours(self, upload: ListedUpload, job: str | None) -> tuple[bool, str] | None:
        """Whether to abort an upload of a job of this table, and why; ``None``: of no such job."""
        if upload.key.startswith(self.root.probe_key("")):
            # A probe runs while its job is open, and its upload names no job.
            if self.still_open:
                return False, "a probe's, and a job is open"
            return True, "left by a probe"
        if job in self.still_open:
            return False, "its job is open"
        decided = self.decisions.get(job or "")
        if isinstance(decided, DamagedError):
            return False, "its job's decision cannot be read"
        if job is not None and decided is not None:
            verdict = decided.decision.verdict
            if (upload.key, upload.upload_id) in decided.decision.upload_ids:
                return False, "the committed decision names it"
            return True, f"its job is closed ({verdict}) and its decision does not name it"
        return None

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
        if age < least:
            return False, f"foreign and {age:.0f} s old, younger than {least:.0f} s"
        return True, f"foreign and {age:.0f} s old"
