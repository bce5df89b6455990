"""Changes of partitions in a commit decision: the files that each partition gets and loses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import CommitConflictError, HeadMovedError, TableMismatchError, first_few
from ..format.job_spec import Mode, OnConflict
from ..format.layout import job_in_key
from ..format.parquet.foreign_columns import ForeignFile, check_files
from ..format.read_base import listing_digest
from ..format.records.decision import Decision
from ..format.records.head import HeadState
from ..format.records.partition_decision import NO_HEAD, PartitionDecision, StoredFile
from ..format.records.partition_ranks import NO_RANKS, PartitionRanks
from ..format.records.pending_file import PendingFile, TaskResult
from ..format.schema.directory import is_data_file
from ..format.schema.other_formats import refuse_other_logs
from ..store.requests import All, ListedObject, Step
from .index.lost_heads import files_without_heads
from .state.context import Context
from .state.data_listing import list_data
from .state.decide import read_decision
from .state.job_state import OpenedJob
from .state.partition_files import files_of_head
from .state.task_results import destination_exists


@dataclass(frozen=True)
class Target:
    """Partition that the job changes.

    :param replaces: whether the job removes what the partition holds.
    :param drops: the attempt of the job's run that changed the partition last. The job replaces the
        files of that attempt, and those of the attempts before it.
    :param shared: whether files of ``drops`` have rows of other jobs, too.
    """

    partition: str
    files: tuple[PendingFile, ...] = ()
    replaces: bool = False
    drops: str | None = None
    shared: bool = False


def targets_of(
    opened: OpenedJob, results: Sequence[TaskResult], others: Collection[str] = ()
) -> dict[str, Target]:
    """Return the partitions with rows and those that the job names, by name and in its order.

    :param others: further ones, that the job empties or adopts.
    """
    replaces = opened.spec.mode is Mode.REPLACE
    files: dict[str, list[PendingFile]] = {}
    for file in (file for result in results for file in result.files):
        files.setdefault(file.partition, []).append(file)
    names = sorted({*files, *(opened.spec.replace_partitions or ()), *others})
    return {name: Target(name, tuple(files.get(name, ())), replaces) for name in names}


def compose_decision(
    context: Context,
    opened: OpenedJob,
    targets: Sequence[Target],
    held: Mapping[str, HeadState],
    run_version: int = 0,
) -> Step[Decision]:
    """Compose a job's commit decision; list a partition if its present files matter.

    :param held: by partition, the head that the job claimed; empty for a table that has no heads.
    :raises DestinationExistsError: mode fail-if-exists met files.
    :raises DamagedError: a partition to which files are added has lost its head.
    :raises TableMismatchError: the job takes over or removes files of another table format.
    """
    changes = yield from All(
        tuple(_change(context, opened, target, held.get(target.partition)) for target in targets)
    )
    taken = (file for change in changes for file in (*change.adopted, *change.removals))
    if any(job_in_key(file.key) is None for file in taken):
        yield from refuse_other_logs([context.root])
    decision = Decision.commit(
        opened.job, context.write_id(), opened.spec, tuple(changes), run_version
    )
    return replace(
        decision,
        schema_version=opened.schema_version,
        inputs=opened.told_inputs,
        own_since=None if opened.repeat_of is None else opened.own_since,
    )


def _change(
    context: Context, opened: OpenedJob, target: Target, state: HeadState | None
) -> Step[PartitionDecision]:
    merged = tuple(opened.spec.merges.get(target.partition, ()))
    row_changes = opened.spec.row_changes.get(target.partition)
    ranks, rank = _ranks_after(opened, target, state), opened.rank(target.partition)
    has_none = state is None or merged
    change = PartitionDecision(
        partition=target.partition,
        base_version=NO_HEAD if state is None else state.head.version,
        replace=target.replaces,
        files=target.files,
        merged=merged if row_changes is None else (*merged, opened.job),
        row_changes=row_changes,
        ranks=ranks,
        rank=None if has_none or rank == ranks.newest else rank,
        opened_version=_opened_version(opened, target, state),
        settles=target.partition in opened.settles,
        other_rows=bool(merged) and opened.spec.other_rows,
    )
    if state is not None and change.leaves_rows:
        change = replace(change, former_job=state.head.last_job)
    # A cleared run that only removes its own files from a partition may find files of others.
    exclusive = opened.spec.mode is Mode.FAIL_IF_EXISTS and bool(target.files)
    if state is not None and target.drops:
        yield from _refuse_moved(context, target, state)
    first = change.base_version == 0
    if not (first or target.replaces or target.drops or exclusive):
        return change
    listed = yield from list_data(context.root, target.partition)
    # If the owner commits again a job that it could not finish, files of this job are there.
    there = tuple(
        StoredFile(item.key, item.etag, item.size)
        for item in listed
        if job_in_key(item.key) != opened.job
    )
    named = () if state is None else state.head.decisions
    jobs = {job for file in there if (job := job_in_key(file.key)) is not None}
    attempts = yield from _own_attempts(context, opened, target, jobs.union(named))
    if target.drops is not None:
        change = _dropping(change, [target.drops, *attempts])
    if target.replaces:
        if first:
            _refuse_unread(context, opened, target, listed)
        elif merged or row_changes is not None:
            there = yield from _without_unread(context, state, there)
        return change if opened.spec.keep_replaced else replace(change, removals=there)
    own = tuple(f for f in there if job_in_key(f.key) in attempts)
    others = tuple(f for f in there if f not in own)
    if exclusive and others:
        raise destination_exists(target.partition, [file.key for file in others])
    foreign: set[str] = set()
    if first:
        theirs = [item for item in listed if job_in_key(item.key) != opened.job]
        files, lost = yield from files_without_heads(context, {target.partition: theirs})
        for damage in lost.values():
            if not isinstance(damage, HeadMovedError):  # Else this job is fenced, and will notice.
                raise damage
        foreign = {file.key for of_it in files.values() for file in of_it}
    # Only an attempt's own decision names the files that it adopted, until it is folded: then the
    # head's manifest names them.
    changes = (it for job in named if job in attempts for it in attempts[job])
    keeps = {file for change in changes for file in change.adopted}
    adopted = tuple(f for f in others if f.key in foreign or f in keeps)
    yield from _refuse_unfit(context, opened, target, [f for f in adopted if f.key in foreign])
    return replace(change, removals=own, adopted=adopted)


def _opened_version(opened: OpenedJob, target: Target, state: HeadState | None) -> int | None:
    """Return a partition's version at the job's opening, if other jobs have moved it since.

    So the record shows which job was there first without comparing clocks.
    """
    if state is None:
        return None
    version = state.version_at(opened.base.get(target.partition))
    if version is None and state.head.trail:
        version = state.head.trail[0].version
    return None if version == state.head.version else version


def _ranks_after(opened: OpenedJob, target: Target, state: HeadState | None) -> PartitionRanks:
    """Return the ranks of a partition once the job has written it."""
    if state is None:
        return NO_RANKS
    name, given = target.partition, opened.spec.run_rank
    settling = opened.settles.get(name)
    if settling is None:
        return _usual_ranks(opened, target, state)
    # A job that settles a conflict for rows that are there already has no rank. The rows have one.
    keeps = name in opened.spec.settles and not target.replaces
    if settling.rank is None:
        ranks = state.head.ranks if keeps else _usual_ranks(opened, target, state)
        return replace(ranks, settled=settling.runs)
    rank = given.rank(name) if given else None
    return state.head.ranks.after_settling(rank, keeps or target.replaces, settling)


def _usual_ranks(opened: OpenedJob, target: Target, state: HeadState) -> PartitionRanks:
    """Return the ranks of a partition after a job that settles no conflict there."""
    name = target.partition
    if name not in opened.spec.merges and name not in opened.spec.row_changes:
        run = opened.spec.idempotency_key
        return state.head.ranks.after(opened.rank(name), target.replaces, run)
    # Rows that were there stay, in files of this job. A merge adds some, or has only new rows.
    given = opened.spec.run_rank
    rank = given.rank(name) if given and name in opened.spec.row_changes else None
    return state.head.ranks.after(rank, replaces=False)


def _dropping(change: PartitionDecision, attempts: Iterable[str]) -> PartitionDecision:
    """Return the change, extended to remove the files of attempts of the job's own run."""
    first, *more = [*dict.fromkeys(attempts)] or [None]
    return replace(change, dropped_job=first, also_dropped=tuple(it for it in more if it))


def _without_unread(
    context: Context, state: HeadState | None, there: tuple[StoredFile, ...]
) -> Step[tuple[StoredFile, ...]]:
    """Return the files that may be removed as a job rewrites a partition's rows.

    A file of another program that came after the head had moved stays: the head does not name it,
    so the job has not read it.
    """
    if state is None or all(job_in_key(file.key) for file in there):
        return there
    named = {file.key for file in (yield from files_of_head(context, state))}
    return tuple(file for file in there if job_in_key(file.key) or file.key in named)


def _refuse_unfit(
    context: Context, opened: OpenedJob, target: Target, adopted: Sequence[StoredFile]
) -> Step[None]:
    """Refuse to adopt files with columns that the table would not show.

    Each file is read as it is listed under this job's claim: another program may have written it
    since the table was made.

    :raises TableMismatchError: there are such files.
    :raises DamagedError: a file is not Parquet.
    """
    if not adopted:
        return
    files = [ForeignFile(f.key, target.partition, f.size, f.etag) for f in adopted]
    columns = yield from context.read_columns(files, opened.partition_by)
    check_files(
        context.root,
        opened.schema,
        zip(files, columns, strict=True),
        "Let the table have these columns, too, as far as they fit: zero-rename adopt "
        f"{context.root.url} --apply; move away what does not.",
    )


#: By job, its changes of a partition.
_Changes = Mapping[str, Sequence[PartitionDecision]]


def _own_attempts(
    context: Context, opened: OpenedJob, target: Target, there: Collection[str]
) -> Step[_Changes]:
    """Find the attempts of the job's run that have files in a partition, newest first.

    The values are their changes, by what each attempt's decision says.

    Requests: none unless the job replaces an attempt; else a GET for each job that has files there,
    or whose rows were rewritten.

    :param there: the jobs whose files the partition holds, or its head names.
    :raises CommitConflictError: rows of an attempt are in files with rows of others.
    """
    if target.drops is None:
        return {}
    found = yield from _read_changes(context, opened, target, there)
    own = {job: changes for job, (is_own, changes) in found.items() if is_own}
    others = [it for job, (_, changes) in found.items() if job not in own for it in changes]
    merged = {job for change in others for job in change.merged if job}
    again = yield from _read_changes(context, opened, target, merged.difference(found))
    every = {*own, target.drops, *(job for job, (is_own, _) in again.items() if is_own)}
    shared = target.shared or any(change.merged for it in own.values() for change in it)
    _refuse_merged(target, others, every, shared)
    return dict(sorted(own.items(), reverse=True))  # Ids begin with the time of their opening.


def _read_changes(
    context: Context, opened: OpenedJob, target: Target, jobs: Collection[str]
) -> Step[dict[str, tuple[bool, Sequence[PartitionDecision]]]]:
    """Read the changes of jobs to a partition.

    :returns: by job, whether it is an attempt of the run that this job replaces, and its changes.
    """
    names = sorted(jobs)
    found = yield from All(tuple(read_decision(context, job) for job in names))
    key = opened.spec.idempotency_key
    return {
        job: (
            decided.decision.idempotency_key == key
            and decided.decision.run_version >= opened.own_since,
            decided.changes.get(target.partition, ()),
        )
        for job, decided in zip(names, found, strict=True)
        if decided is not None
    }


def _refuse_unread(
    context: Context, opened: OpenedJob, target: Target, listed: Sequence[ListedObject]
) -> None:
    """Refuse to replace files that the job has not read.

    The head alone does not show such files: a program that adds files without heads moves none. A
    job has read files without a head if its read base has a listing of them. A job that rewrites
    rows of a table that shows only files with heads has read none.

    :raises CommitConflictError: the partition holds other files than the job has read.
    :raises TableMismatchError: there are files that no reader of the table has read.
    """
    base = opened.spec.base
    read = None if base is None else base.listing(target.partition)
    data = (it for it in listed if is_data_file(it) and job_in_key(it.key) is None)
    there = [(it.key, it.size) for it in data]
    if read is None:
        if there and target.partition in opened.spec.row_changes:
            raise _uncounted(context, target.partition, [key for key, _ in there])
        return
    if opened.spec.on_conflict is OnConflict.LAST_WINS:
        return
    if listing_digest(there) != read:
        raise CommitConflictError(
            f"{target.partition} holds other files than when this job read it, and no job of this "
            "package wrote them. Nothing of this job is visible.",
            remedy="Run the job again on what is there now, or choose on_conflict=last_wins.",
        )


def _uncounted(context: Context, partition: str, keys: Sequence[str]) -> TableMismatchError:
    return TableMismatchError(
        f"{partition} holds files that no job of this package wrote and no reader of the table "
        f"counts, so no row of theirs was compared: {first_few(keys)}. Nothing of this job is "
        "visible.",
        table=context.root.url,
        key=keys[0],
        remedy=f"Let the table have them: zero-rename adopt {context.root.url} --apply, and change "
        "the rows again; or move them away.",
    )


def _refuse_merged(
    target: Target, others: Iterable[PartitionDecision], own: Collection[str], shared: bool
) -> None:
    """Refuse to drop attempts whose rows cannot be separated from rows of others.

    A compaction or a merge has rewritten them together with rows of others: the attempts' rows
    would stay, and be there twice. Or the attempts' own files have rows of others. If the partition
    is replaced, and all rewritten rows are the run's, no row can be there twice.

    :param others: the changes by jobs that are not attempts of the run and have files there.
    :param own: the run's attempts whose rows may be there.
    :param shared: whether a file of theirs has rows of other jobs, too.
    :raises CommitConflictError: the rows cannot be separated.
    """
    own = {*own}
    if (shared and not target.replaces) or any(
        not own.isdisjoint(change.merged)
        and not (target.replaces and own.issuperset(change.merged))
        for change in others
    ):
        raise CommitConflictError(
            f"The rows that this run wrote to {target.partition} before are in files with rows "
            "of others since a compaction or a merge, so they cannot be taken out. Nothing was "
            "changed.",
            remedy="Load the partition again with mode replace, from all of its sources.",
        )


def _refuse_moved(context: Context, target: Target, state: HeadState) -> Step[None]:
    """Refuse to load rows of a run again that a merge has moved to other partitions.

    The merge left this partition empty; the rows would be in both. If the partition has got rows
    since, this cannot be found out.

    :raises CommitConflictError: a merge has moved the rows.
    """
    head = state.head
    if (
        head.last_job is None
        or head.replace_version != head.version
        or target.drops == head.last_job
    ):
        return
    decided = yield from read_decision(context, head.last_job)
    changes = () if decided is None else decided.changes.get(target.partition, ())
    for change in changes:
        rows = change.row_changes
        if rows is not None and not rows.after and not rows.deleted:
            raise CommitConflictError(
                f"The rows that this run wrote to {target.partition} before were moved to other "
                f"partitions by the merge {head.last_job}; they would be there twice. Nothing was "
                "changed.",
                remedy="Merge the run's rows by their key, across_partitions, instead.",
            )
