"""Ledgers that may have the record of a job's attempt.

The record lies beside the destination that the operator or ``save()`` named. Recovery may get
another folder: the destination may contain it (if recovery gets a partition's folder), or lie in
it (if the job loaded a single partition's folder).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...committer.commit.state.tolerance import unless_denied
from ...committer.format.layout import TableRoot
from ...committer.store.requests import All, Step
from ..hadoop.job_traces import is_staged_name
from ..runs.ledger import OpenTries, open_tries
from .leftovers import Kind, LeftoverJob
from .liveness import JobLiveness, Judgement, RecoveryOptions, judge


def ledgers_of(root: TableRoot, job: LeftoverJob) -> list[TableRoot]:
    """Return the destinations whose ledgers may know a job.

    These are the root, then the folders that contain it, then the folders in it that contain the
    job's destination. A magic job's destination is the folder of its tree; that of another job is a
    folder around its files.
    """
    places = {f"{job.destination}/"}
    if job.kind is not Kind.MAGIC:
        places |= {upload.key for upload in job.uploads}
        places |= {key for key in job.keys if key.startswith(f"{root.prefix}/")}
    within = {prefix for place in places for prefix in _between(root, place)}
    return [root, *root.around, *(TableRoot(root.bucket, it) for it in sorted(within))]


def is_strange(job: LeftoverJob) -> bool:
    """Return whether a job is only uploads whose names do not show that S3A made them."""
    return job.kind is Kind.UPLOADS and not any(is_staged_name(it.key) for it in job.uploads)


def placed(job: LeftoverJob, root: TableRoot, judgement: Judgement) -> LeftoverJob:
    """Return a job with the destination that the record of its attempt has.

    The tree of a magic job shows its destination. Of other jobs only their files are known, which
    may all lie in one partition of a table that they loaded.
    """
    record = judgement.record
    if record is None or job.kind is Kind.MAGIC:
        return job
    if not record.writes and record.uuid.lower() == job.uuid.lower():
        # An application without save() writes into the table beside which the record lies.
        return replace(job, destination=(judgement.ledger or root).prefix)
    for write in record.writes:
        place = write.root
        if write.uuid.lower() == job.uuid.lower() and place.bucket == root.bucket and place.prefix:
            return replace(job, destination=place.prefix)
    return job


def _between(root: TableRoot, key: str) -> Iterator[str]:
    """Yield the folders of a key that lie in a root."""
    parts = key.split("/")[:-1]
    for depth in range(root.prefix.count("/") + 2, len(parts) + 1):
        yield "/".join(parts[:depth])


class JobJudge:
    """Judge of the jobs of one root, by all ledgers that may know them.

    :param now: by the store's clock.
    :param tries: the attempts that are open in the root's own ledger.
    """

    def __init__(
        self, root: TableRoot, now: float, tries: OpenTries, options: RecoveryOptions
    ) -> None:
        self._root = root
        self._now = now
        self._options = options
        self._known = {root: tries}

    def judged(self, job: LeftoverJob) -> Step[Judgement]:
        """Judge whether a job is live, dead, superseded or unknown.

        No request is sent if the root's own ledger names the job's attempt or shows that it is
        live, nor for uploads that the caller judges itself. Otherwise a LIST for each further
        ledger.
        """
        own = self._by(self._root, job)
        is_left = not self._options.strangers and is_strange(job)
        if own.record is not None or own.state is JobLiveness.LIVE or is_left:
            return own
        others = ledgers_of(self._root, job)[1:]
        new = [it for it in others if it not in self._known]
        asked = tuple(unless_denied(open_tries(it), OpenTries()) for it in new)
        self._known |= zip(new, (yield from All(asked)), strict=True)
        found = [self._by(it, job) for it in others]
        told = [it for it in found if it.record is not None]
        told += [it for it in found if it.state is JobLiveness.LIVE]
        if own.state is JobLiveness.DEAD:
            # In these ledgers a record cannot be read.
            told += [it for it in found if it.state is JobLiveness.UNKNOWN]
        return told[0] if told else own

    def _by(self, ledger: TableRoot, job: LeftoverJob) -> Judgement:
        """Judge a job by one ledger."""
        return replace(judge(job, self._now, self._known[ledger], self._options), ledger=ledger)
