"""Ledgers that may have a job's try on record.

A try lies beside the destination that its operator or ``save()`` named: that may be the folder
which recovery was given, one around it (somebody names a partition's folder), or one in it that
the job wrote to (somebody loads a single partition's folder by itself).
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
    """The destinations whose ledgers may know a job: the root first, then those around it, then
    those in it that hold the job's destination. A magic job's is where its tree lies; any other's
    is around its files."""
    places = {f"{job.destination}/"}
    if job.kind is not Kind.MAGIC:
        places |= {upload.key for upload in job.uploads}
        places |= {key for key in job.keys if key.startswith(f"{root.prefix}/")}
    within = {prefix for place in places for prefix in _between(root, place)}
    return [root, *root.around, *(TableRoot(root.bucket, it) for it in sorted(within))]


def is_strange(job: LeftoverJob) -> bool:
    """Return whether some uploads may be any tool's, as far as their names say."""
    return job.kind is Kind.UPLOADS and not any(is_staged_name(it.key) for it in job.uploads)


def _between(root: TableRoot, key: str) -> Iterator[str]:
    """The folders of a key that lie in a root."""
    parts = key.split("/")[:-1]
    for depth in range(root.prefix.count("/") + 2, len(parts) + 1):
        yield "/".join(parts[:depth])


class JobJudge:
    """Judges jobs of one root, by all ledgers that may know them.

    :param now: by the store's clock.
    :param tries: those that are open beside the root.
    """

    def __init__(
        self, root: TableRoot, now: float, tries: OpenTries, options: RecoveryOptions
    ) -> None:
        self._root = root
        self._now = now
        self._options = options
        self._known = {root: tries}

    def judged(self, job: LeftoverJob) -> Step[Judgement]:
        """Tell live from dead, superseded and unknown. No request where the root's own ledger
        says whose the job is, or that it lives, nor of uploads that somebody else judges; else a
        LIST for each further ledger."""
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
            # Of these a record cannot be read.
            told += [it for it in found if it.state is JobLiveness.UNKNOWN]
        return told[0] if told else own

    def _by(self, ledger: TableRoot, job: LeftoverJob) -> Judgement:
        """The judgement by one ledger."""
        return replace(judge(job, self._now, self._known[ledger], self._options), ledger=ledger)
