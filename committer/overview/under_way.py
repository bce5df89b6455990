"""Jobs under way: those with an open record, and the partitions that they are known to write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..commit.state.context import Context
from ..commit.state.open_jobs import list_open, read_open
from ..commit.state.tolerance import or_damage
from ..errors import DamagedError
from ..format.job_spec import NOBODY, Owner
from ..format.layout import job_in_key
from ..format.records.decision import Verdict
from ..store.requests import All, ListedUpload, Step
from ..upkeep.recovery import JudgedJob, judge_job


@dataclass(frozen=True)
class JobUnderWay:
    """Job that is not completely cleaned up yet.

    :param silent_for: seconds without a heartbeat, by the store's clock, of ``allowed``.
    :param decided: its verdict; ``None`` while it has none.
    :param partitions: those that it names, has claimed or has uploads in: of an append no more is
        known before it decides.
    :param is_dead: its process has ended, by recovery's rule: it was silent for too long.
    :param damage: which of its records cannot be read, and why; ``""`` if all can.
    """

    job: str
    owner: Owner
    idempotency_key: str | None
    silent_for: float
    allowed: float
    decided: Verdict | None
    partitions: tuple[str, ...]
    is_dead: bool
    damage: str = ""

    @property
    def is_running(self) -> bool:
        """True if a process makes rows of it visible, or may still do so."""
        return not self.is_dead and self.decided is not Verdict.ABORT


def jobs_under_way(
    context: Context, claims: Mapping[str, str], uploads: Iterable[ListedUpload]
) -> Step[list[JobUnderWay]]:
    """Read the open jobs, oldest first. One LIST, and two requests a job.

    :param claims: the claiming job by partition.
    :param uploads: those under way below the table.
    """
    jobs = sorted((yield from list_open(context)))
    at_work: dict[str, set[str]] = defaultdict(set)
    for partition, job in claims.items():
        at_work[job].add(partition)
    for upload in uploads:
        job, partition = job_in_key(upload.key), context.root.partition_of_data_key(upload.key)
        if job is not None and partition is not None:
            at_work[job].add(partition)
    found = yield from All(tuple(_under_way(context, job, at_work[job]) for job in jobs))
    return [job for job in found if job is not None]


def _under_way(context: Context, job: str, at_work: set[str]) -> Step[JobUnderWay | None]:
    judged = yield from or_damage(judge_job(context, job, None))
    if judged is None:
        return None
    if isinstance(judged, DamagedError):
        entry = yield from read_open(context, job)
        if entry is None:
            return None
        judged, unread = JudgedJob(entry, None, entry.patience), judged
    else:
        unread = judged.entry.damage
    entry, record = judged.entry, judged.entry.record
    named = set() if record is None else set(record.partitions)
    return JobUnderWay(
        job,
        NOBODY if record is None else record.owner,
        None if record is None else record.idempotency_key,
        entry.silent_for,
        judged.allowed,
        None if judged.decided is None else judged.decided.decision.verdict,
        tuple(sorted(named | at_work)),
        entry.silent_for >= judged.allowed,
        "" if unread is None else str(unread),
    )
