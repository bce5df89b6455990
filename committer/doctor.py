"""Examination of a table and its bucket: each problem with what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from .errors import DamagedError
from .job_spec import Coordination, JobSpec
from .layout import TableRoot
from .maintenance.purge import PurgeAction, all_heads, purge
from .protocol.open import OpenEntry, list_open, read_open
from .protocol.snapshot import read_table
from .records.head import HeadState
from .records.table_record import TableRecord
from .s3.lifecycle import LifecycleRule
from .s3.requests import All, ListLifecycleRules, Step, Unknown
from .state.context import Context
from .state.decide import read_decision
from .state.heads import read_head

DAY = 24 * 3600.0
#: Seconds after which a decided job that is still open counts as abandoned.
APPLYING = 3600.0
#: Seconds a table may wait for somebody to run recovery.
RECOVERY = DAY


@dataclass(frozen=True)
class Problem:
    """Something that is or will be wrong.

    :param what: in a few words.
    :param subject: the key, job, rule or store concerned.
    :param detail: what was found.
    :param remedy: what to do.
    """

    what: str
    subject: str
    detail: str
    remedy: str


def examine(context: Context, max_duration: float | None = None) -> Step[list[Problem]]:
    """Everything that the store's objects, uploads and lifecycle rules tell. Changes nothing.

    Costs one request for every head and open job.

    :param max_duration: seconds the longest job may run; ``None`` takes the default of jobs, or
        an open job's own where that is longer.
    :raises TableNotFoundError: no table here.
    """
    table = yield from read_table(context)
    context = replace(context, facts=table.facts)
    found = _about_store(context, table)
    sections: Sequence[Callable[[Context, TableRecord], Step[list[Problem]]]] = (
        _about_jobs,
        _about_claims,
        _about_uploads,
    )
    for section in sections:
        try:
            found += yield from section(context, table)
        except DamagedError as error:
            found.append(
                Problem(
                    "damaged",
                    error.key or context.root.url,
                    error.message,
                    error.remedy or "Restore the object from a version or backup.",
                )
            )
    return found + (yield from _about_lifecycle(context, max_duration))


def _about_store(context: Context, table: TableRecord) -> list[Problem]:
    facts, server = table.facts, table.facts.server or "unnamed"
    if table.coordination is Coordination.STORE and not facts.atomic:
        return [
            Problem(
                "store not atomic",
                server,
                "This store checks a condition and writes in two steps, so two writers may both "
                "win. A second writer is refused while one is open.",
                "Let one job write at a time, or move the table to AWS S3, R2, MinIO, Ceph, "
                "SeaweedFS or Ozone.",
            )
        ]
    if table.coordination is Coordination.NONE and facts.atomic and facts.conditional_put:
        return [
            Problem(
                "not coordinated",
                server,
                "The table has coordination=none, and this store keeps conditional writes.",
                "Write new tables with coordination=store: writers then notice each other and "
                "any process can finish a commit.",
            )
        ]
    return []


def _about_jobs(context: Context, table: TableRecord) -> Step[list[Problem]]:
    jobs = yield from list_open(context)
    found = yield All(tuple(_about_job(context, job, table) for job in sorted(jobs)))
    return [complaint for complaint in found if complaint is not None]


def _about_job(context: Context, job: str, table: TableRecord) -> Step[Problem | None]:
    entry: OpenEntry | None = yield from read_open(context, job)
    if entry is None:
        return None
    decided = yield from read_decision(context, job)
    allowed = entry.record.patience if decided is None else APPLYING
    if entry.silent_for < allowed:
        return None
    state = "undecided" if decided is None else f"decided ({decided.decision.verdict})"
    url = context.root.url
    remedy = f"Settle it: zero-rename recover {url}"
    if decided is not None and decided.decision.is_commit:
        remedy += f"; where that says files are lost: zero-rename repair {url} --job {job}"
    if table.coordination is Coordination.NONE:
        remedy = f"Nobody but its owner can finish it; see zero-rename recover {url}"
    detail = f"{state} and silent for {entry.silent_for:.0f} s, {allowed:.0f} s are usual"
    return Problem("job left open", job, detail, remedy)


def _about_claims(context: Context, table: TableRecord) -> Step[list[Problem]]:
    if table.coordination is Coordination.NONE:
        return []
    states = yield from all_heads(context)
    claimed = [state for state in states if state.head.claim is not None]
    found = yield All(tuple(_about_claim(context, state) for state in claimed))
    return [complaint for complaint in found if complaint is not None]


def _about_claim(context: Context, state: HeadState) -> Step[Problem | None]:
    job = state.head.claim
    assert job is not None
    if (yield from read_open(context, job)) is not None:
        return None
    again = yield from read_head(context, state.slot)
    if again.etag != state.etag:
        return None  # Its job closed in between.
    return Problem(
        "claim of a dead job",
        state.slot.key,
        f"The head carries the claim of {job}, which has no open record.",
        f"Take it off: zero-rename purge {context.root.url}",
    )


def _about_uploads(context: Context, table: TableRecord) -> Step[list[Problem]]:
    report = yield from purge(context, foreign_older_than=DAY, dry_run=True)
    groups: dict[bool, list[str]] = {}
    for entry in report.entries:
        if entry.action is PurgeAction.WOULD_ABORT:
            groups.setdefault(entry.reason.startswith("foreign"), []).append(entry.key)
    found = []
    for foreign, keys in sorted(groups.items()):
        whose = (
            "that no job of this package made, older than a day" if foreign else "of closed jobs"
        )
        options = f" --foreign --older-than {DAY:.0f}" if foreign else ""
        found.append(
            Problem(
                "foreign uploads" if foreign else "left-over uploads",
                keys[0],
                f"{len(keys)} uploads {whose}: they are stored and paid for, and nobody sees them.",
                f"Abort them: zero-rename purge {context.root.url}{options}",
            )
        )
    return found


def _about_lifecycle(context: Context, max_duration: float | None) -> Step[list[Problem]]:
    found = yield ListLifecycleRules()
    if isinstance(found, Unknown):
        return [_unknown_rules(context.root.bucket, found.cause)]
    longest = max_duration or (yield from _longest_job(context))
    return about_rules(found.rules, context.root, longest)


def _longest_job(context: Context) -> Step[float]:
    """The longest maximum duration of the jobs that are open, the default's at least; seconds."""
    entries = yield All(
        tuple(read_open(context, job) for job in sorted((yield from list_open(context))))
    )
    durations = [entry.record.max_duration for entry in entries if entry is not None]
    return max([JobSpec.max_duration, *durations])


def _unknown_rules(bucket: str, cause: str) -> Problem:
    return Problem(
        "lifecycle rules unknown",
        bucket,
        f"The store did not tell the bucket's lifecycle rules ({cause}).",
        "Grant s3:GetLifecycleConfiguration, and look for rules that abort uploads or expire "
        "objects of this table.",
    )


def about_rules(rules: Sequence[LifecycleRule], root: TableRoot, longest: float) -> list[Problem]:
    """Rules that take what a job or a reader still needs.

    :param longest: seconds the longest job may run.
    """
    # The rule counts whole days from an upload's start: its first parts are as old as the job.
    needed = ceil((longest + RECOVERY) / DAY)
    found = []
    for rule in rules:
        if not rule.concerns(f"{root.prefix}/"):
            continue
        if rule.abort_days is not None and rule.abort_days < needed:
            found.append(
                Problem(
                    "lifecycle rule too short",
                    rule.name,
                    f"It aborts uploads after {rule.abort_days} days; a job may take "
                    f"{longest / 3600:.0f} h and its recovery {RECOVERY / 3600:.0f} h more. It "
                    "would take files that a job has committed.",
                    f"Set DaysAfterInitiation to {needed} or more.",
                )
            )
        if rule.expires:
            found.append(
                Problem(
                    "lifecycle rule expires the table",
                    rule.name,
                    "It deletes objects of this table by age: data that heads name, and the "
                    "records under _zero_rename/ themselves.",
                    "Exclude the table's prefix; remove old partitions by a replace that names "
                    "them.",
                )
            )
    return found
