"""Examination of a table and its bucket: the problems, each with its remedy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from math import ceil

from ...commit.state.context import Context
from ...commit.state.found_table import read_table
from ...commit.state.open_jobs import list_open, read_open
from ...commit.state.table_kind import OPEN_IN_LOG
from ...commit.state.tolerance import or_damage, unless_gone
from ...errors import (
    DamagedError,
    InvalidInputError,
    OutcomeUnknownError,
    StoreRefusedError,
    TableNotFoundError,
    ZeroRenameError,
    counted,
)
from ...format.job_spec import Coordination, JobSpec
from ...format.layout import TableRoot
from ...format.records.table_record import TableRecord
from ...format.schema.directory import canonical_name, is_parquet, visible_files
from ...scan.current_table import current_table
from ...store.fast_root import FastPlace, FastRoot
from ...store.lifecycle import LifecycleRule
from ...store.listing import list_objects
from ...store.requests import (
    All,
    Done,
    Found,
    Get,
    ListedObject,
    ListLifecycleRules,
    PutLifecycleRule,
    Refused,
    Step,
    Unknown,
)
from ..adopt import find_unadopted
from ..lost_partitions import lost_partitions
from ..problem import Problem, about_damage
from ..purging.purge_plan import Judged, Wanted, Whose, judge_uploads
from .job_problems import about_heads, about_jobs
from .store_problems import about_rights, about_store
from .tiering_problems import about_tiering

DAY = 24 * 3600.0
#: Seconds that may pass before recovery is run on a table.
RECOVERY = DAY
#: Days after which a rule aborts uploads by default: a week, in which operators can act first.
_DAYS = 7
#: Characters that S3 accepts in a rule's name.
_LONGEST_NAME = 255


def examine(context: Context, max_duration: float | None = None) -> Step[list[Problem]]:
    """Examine a table and its bucket (:meth:`.table.Table.doctor`). Changes nothing; the objects of
    its probe are removed again.

    Costs one request for every head, open job and decision that a head names, some forty more, and
    a listing of the table.
    """
    problems = yield from about_rights(context)
    if problems:
        # The probe and the reads of the table's state would lack the same rights.
        return problems + (yield from _about_rules(context, max_duration or JobSpec.max_duration))
    table = yield from or_damage(_table(context))
    if table is None:
        table = yield from _nothing_lost(context)
    if isinstance(table, DamagedError):
        # The table's record is its oldest object, so a rule that expires objects takes it first.
        found = [*problems, about_damage(context.root, table)]
        found += yield from _about_lifecycle(context, max_duration)
        return found + (yield from about_tiering(context))
    problems += yield from about_store(context, table)
    if table is None:
        # There may be jobs without a table: a first job that died leaves none.
        problems += yield from about_jobs(context, Coordination.STORE)
    else:
        context = context.of(table)
        problems += yield from _about_table(context, table)
    problems += yield from _about_lifecycle(context, max_duration)
    return problems + (yield from about_tiering(context))


def problems(context: Context) -> Step[list[Problem]]:
    """Find jobs left open, orphaned uploads and harmful lifecycle rules of a table
    (:meth:`.table.Table.problems`)."""
    table = yield from _table(context)
    coordination = Coordination.STORE
    found: list[Problem] = []
    if table is not None:
        context, coordination = context.of(table), table.coordination
        found += yield from _about_uploads(context)
    found += yield from about_jobs(context, coordination)
    return found + (yield from _about_lifecycle(context, None))


def about_place(context: Context, max_duration: float) -> Step[list[Problem]]:
    """Find problems of rights, store and lifecycle rules, without looking at a table.

    :param max_duration: seconds that the longest job may take.
    """
    found = yield from about_rights(context)
    if not found:
        found += yield from about_store(context, None)
    found += yield from _about_rules(context, max_duration)
    return found + (yield from about_tiering(context))


def _table(context: Context) -> Step[TableRecord | None]:
    try:
        return (yield from read_table(context))
    except TableNotFoundError:
        return None


def _nothing_lost(context: Context) -> Step[DamagedError | None]:
    """Return an error if the root had a table and its records are lost; otherwise ``None``."""
    try:
        yield from current_table(context)
    except DamagedError as error:
        return error
    except ZeroRenameError:
        return None  # There is no table, or the files do not form one.
    return None


def _about_table(context: Context, table: TableRecord) -> Step[list[Problem]]:
    found: list[Problem] = []
    for section in (
        about_jobs(context, table.coordination),
        about_heads(context, table),
        _about_uploads(context),
        _about_older_files(context, table),
    ):
        try:
            found += yield from section
        except DamagedError as error:
            found.append(about_damage(context.root, error))
    return list(dict.fromkeys(found))  # Several sections may meet one damaged record.


def _about_uploads(context: Context) -> Step[list[Problem]]:
    judged = yield from judge_uploads(context, Wanted(foreign_older_than=DAY))
    url = context.root.url
    stored = "stored and paid for, and seen by nobody."
    groups = {
        Whose.OURS: ("orphaned uploads", "of closed jobs", ""),
        Whose.FOREIGN: (
            "foreign uploads",
            "that no job of this package made, older than a day",
            " --foreign --older-than 1d",
        ),
    }
    found = []
    for whose, (what, of_whom, options) in groups.items():
        keys = [it.upload.key for it in judged if it.abort and it.whose is whose]
        if keys:
            detail = f"{counted(len(keys), 'upload')} {of_whom}: {stored}"
            remedy = f"Abort them: zero-rename purge {url}{options} --apply"
            found.append(Problem(what, keys[0], detail, remedy))
    return found + _about_unknown(context, judged)


def _about_unknown(context: Context, judged: Sequence[Judged]) -> list[Problem]:
    unknown = {it.job: it.upload.key for it in judged if it.whose is Whose.UNKNOWN and it.job}
    return [
        Problem(
            "uploads of an unknown job",
            key,
            f"The table has no record of {job}: it is another table's, or its records were "
            "deleted.",
            f"If it is nobody's: zero-rename purge {context.root.url} --job {job} --apply",
        )
        for job, key in sorted(unknown.items())
    ]


def _about_older_files(context: Context, table: TableRecord) -> Step[list[Problem]]:
    """Find files that no head names: those in partitions without a head, and those in no partition
    of the table; also the partitions whose heads are lost."""
    if table.coordination is Coordination.NONE:
        return []
    listing = yield from list_objects(f"{context.root.prefix}/")
    listed: dict[str, list[ListedObject]] = {}
    strays: list[str] = []
    for item in visible_files(context.root, listing.objects):
        name = context.root.partition_of_data_key(item.key) or ""
        listed.setdefault(name, []).append(item)
        fits = canonical_name(name, table.schema, table.partition_by) is not None
        if not (fits and is_parquet(item)):
            strays.append(item.key)
    older, gone = yield from find_unadopted(context, table.schema, table.partition_by, listed)
    older = {name: it for name, it in older.items() if name not in gone}
    gone |= yield from lost_partitions(context, listing.objects)
    url = context.root.url
    found = _about_lost(context, gone)
    if older:
        what, then = "files no reader sees", "and no head: readers do not see them."
        remedy = "If their rows belong to the table, adopt them"
        if table.unadopted:
            what, remedy = "files not adopted", "Adopt them"
            then = "from before the table and no head: every read lists the table for them."
        many = counted(len(older), "partition has", "partitions have")
        remedy = f"{remedy}: zero-rename adopt {url} --apply"
        found.append(Problem(what, next(iter(older)), f"{many} files {then}", remedy))
    if strays:
        found.append(
            Problem(
                "files no reader sees",
                strays[0],
                f"{counted(len(strays), 'file', 'files')} in no partition of the table, or no "
                "Parquet by name.",
                f"Move or remove what does not belong there: zero-rename verify {url} names them.",
            )
        )
    return found


def _about_lost(context: Context, gone: Mapping[str, DamagedError]) -> list[Problem]:
    return [about_damage(context.root, gone[name]) for name in sorted(gone)]


def _about_lifecycle(context: Context, max_duration: float | None) -> Step[list[Problem]]:
    longest = max_duration or (yield from longest_job(context))
    return (yield from _about_rules(context, longest))


def _about_rules(context: Context, longest: float) -> Step[list[Problem]]:
    """Find harmful lifecycle rules of the table's bucket."""
    return (yield from _about_rules_of(context.root, f"{context.root.prefix}/", longest))


def about_fast_rules(root: TableRoot, data_root: FastRoot, longest: float) -> Step[list[Problem]]:
    """Find the lifecycle rules of a data root's bucket that remove what a job or a reader still
    needs. If the bucket cannot be reached, nothing is reported.

    :param longest: seconds that the longest job may take.
    """
    return (yield from _about_rules_of(root, root.fast_data_prefix(data_root), longest))


def _about_rules_of(root: TableRoot, prefix: str, longest: float) -> Step[list[Problem]]:
    found = list[Problem]()
    answer = yield from unless_gone(iter(ListLifecycleRules(prefix)), None)
    place = FastPlace.of(root.bucket, prefix)
    if isinstance(answer, Unknown):
        found.append(
            Problem(
                "lifecycle rules unknown",
                root.bucket if place is None else place.root.bucket,
                f"The store did not tell the bucket's lifecycle rules ({answer.cause}).",
                "Grant s3:GetLifecycleConfiguration, and look for rules that abort uploads or "
                "expire objects of this table.",
            )
        )
    elif answer is not None:
        found += about_rules(answer.rules, root, longest, place)
    return found


def longest_job(context: Context) -> Step[float]:
    """Return the greatest ``max_duration`` of the open jobs, at least the default; seconds.

    Jobs of a Delta table count, too. Records that cannot be read do not say it.
    """
    entries = yield from All(
        tuple(read_open(context, job) for job in sorted((yield from list_open(context))))
    )
    durations = [entry.record.max_duration for entry in entries if entry and entry.record]
    others = [entry.job for entry in entries if entry and not entry.record]
    in_log = yield from All(tuple(_duration_in_log(context, job) for job in others))
    return max([JobSpec.max_duration, *durations, *in_log])


def _duration_in_log(context: Context, job: str) -> Step[float]:
    """Return the ``max_duration`` of a job that commits to a log, seconds; 0: it is not known."""
    found = yield from Get(context.root.open_key(job))
    try:
        members = json.loads(found.body) if isinstance(found, Found) else {}
        return float(members["owner"]["max_duration"]) if members["kind"] == OPEN_IN_LOG else 0.0
    except (KeyError, TypeError, ValueError, RecursionError):
        return 0.0


def about_rules(
    rules: Sequence[LifecycleRule], root: TableRoot, longest: float, place: FastPlace | None = None
) -> list[Problem]:
    """Return problems for the rules that remove what a job or a reader still needs.

    :param longest: seconds that the longest job may run.
    :param place: the data root whose bucket has the rules; ``None``: the table's own bucket.
    """
    needed = _least_days(longest)
    found = []
    for rule in rules:
        if not rule.concerns(f"{root.prefix}/" if place is None else place.there):
            continue
        if rule.abort_days is not None and rule.abort_days < needed:
            found.append(
                Problem(
                    "lifecycle rule too short",
                    rule.name,
                    f"It aborts uploads after {rule.abort_days} days; a job may take "
                    f"{longest / 3600:.0f} h and its recovery {RECOVERY / 3600:.0f} h more. It "
                    "would take files that a job has committed.",
                    f"Set DaysAfterInitiation to {needed} or more, as zero-rename lifecycle "
                    f"{root.url} prints it.",
                )
            )
        where = "the table" if place is None else "the fast root"
        if rule.archives:
            found.append(
                Problem(
                    f"lifecycle rule archives {where}",
                    rule.name,
                    f"It moves objects of this table by age to {rule.archives}, from where nothing "
                    "can be read before it is restored: reads, loads and maintenance then fail.",
                    "Exclude the table's prefix; a class such as GLACIER_IR or STANDARD_IA can be "
                    "read at once.",
                )
            )
        if rule.expires:
            besides = ", and the records under _zero_rename/ themselves" * (place is None)
            found.append(
                Problem(
                    f"lifecycle rule expires {where}",
                    rule.name,
                    f"It deletes objects of this table by age in {where}: data that heads name"
                    f"{besides}.",
                    "Exclude the table's prefix; remove old partitions by a replace that names "
                    "them.",
                )
            )
    return found


def backstop(
    root: TableRoot, days: int | None, max_duration: float | None, apply: bool
) -> Step[LifecycleRule]:
    """Add a lifecycle rule to the table's bucket that aborts old uploads, and return it. The rules
    that are there stay, and :func:`examine` does not object to the new one.

    S3 replaces all rules of a bucket at once, without a condition. So if another process changes
    them at the same time, one of the two changes is lost.

    :param days: the age at which the rule aborts uploads; ``None``: a week, or longer if the
        longest job demands it.
    :param max_duration: seconds that the longest job may run; ``None`` as in :func:`examine`.
    :param apply: ``False`` only returns the rule.
    :raises InvalidInputError: with so few days the rule would remove files of committed jobs.
    :raises StoreRefusedError: the store has no such rules, or the credentials lack the right.
    :raises OutcomeUnknownError: the store did not confirm the rule.
    """
    longest = max_duration or (yield from longest_job(Context(root)))
    rule = _rule(root, longest, days)
    answer = (yield from PutLifecycleRule(rule)) if apply else Done()
    if isinstance(answer, Refused):
        raise StoreRefusedError(
            f"The store took no lifecycle rule ({answer.code}). Nothing was changed.",
            remedy="Run zero-rename uploads abort by age instead, from a DAG or cron.",
        )
    if not isinstance(answer, Done):
        raise OutcomeUnknownError(
            f"The store did not say whether it took the lifecycle rule ({answer.cause}).",
            remedy="Run it again: the rule has a name of its own and is written over.",
        )
    return rule


def _least_days(longest: float) -> int:
    """Return the whole days for which a rule must spare an upload: the longest job, and recovery.
    A rule counts from an upload's start, and an upload can be as old as its job.

    :param longest: seconds that the longest job may run.
    """
    return ceil((longest + RECOVERY) / DAY)


def _rule(root: TableRoot, longest: float, days: int | None) -> LifecycleRule:
    least = _least_days(longest) + 1
    if days is not None and days < least:
        raise InvalidInputError(
            f"A rule of {counted(days, 'day')} would abort uploads that a job may still complete: "
            f"jobs may take {longest / 3600:.0f} h here and their recovery {RECOVERY / 3600:.0f} h."
            " Nothing was changed.",
            remedy=f"Give --days {least} or more, or say how long the longest job is "
            "(--max-duration).",
        )
    return LifecycleRule(_rule_name(root), f"{root.prefix}/", abort_days=days or max(_DAYS, least))


def _rule_name(root: TableRoot) -> str:
    """Return the name of a table's rule; no other table's has it: a rule replaces its namesake."""
    name = f"zero-rename-backstop-{root.prefix}"
    if len(name) <= _LONGEST_NAME:
        return name
    digest = blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{name[: _LONGEST_NAME - len(digest) - 1]}-{digest}"
