"""Step 1: write the open record, read the table and the base; fence or finish earlier attempts."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import (
    DamagedError,
    InvalidInputError,
    JobFencedError,
    OtherJobError,
    OutcomeUnknownError,
    StoreUnfitError,
    TableMismatchError,
    ZeroRenameError,
)
from ..format.file_checks import check_options
from ..format.job_spec import Coordination, JobSpec, OnRepeat, SchemaMode
from ..format.records.decision import Decision
from ..format.records.head import HeadState, Slot
from ..format.records.open_record import OpenRecord
from ..format.records.store_facts import StoreFacts, other_stores
from ..format.records.table_record import TableRecord
from ..format.schema.compatibility import check_partitioning
from ..format.schema.evolution import evolved, overwritten
from ..format.schema.types import normalise
from ..store.conditional_put import Uncertain, Written, put_record
from ..store.requests import All, Delete, Put, Step
from .abort import abort_job_id
from .apply import committed, finish
from .first_job import check_table, confirm, design_table, in_its_columns, spelled_for
from .index.write_index import is_behind
from .narrowed_run import RunsLastJob, as_planned
from .newest_run import refuse_superseded
from .others import about_other
from .state.context import Context
from .state.decide import Decided, read_decision
from .state.found_table import FoundTable, find_table, is_unused
from .state.heads import HeadListing, ListedHead, list_heads_and_index, read_head
from .state.job_state import OpenedJob
from .state.open_jobs import OpenEntry, list_open, read_open
from .state.tolerance import or_damage, or_error
from .uncoordinated import check_uncoordinated, warn_uncoordinated

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("zero_rename.committer.commit.open")
#: Open jobs that a job reads, at the most. Dead jobs that are not recovered must not make every
#: other job slower.
_LOOKED_AT = 16
#: Heads that are read as a job opens, at the most: as many as can be read at the same time.
_READ_AHEAD = 16


def open_job(context: Context, spec: JobSpec) -> Step[OpenedJob]:
    """Begin a job.

    :param spec: its schema may have any Arrow types for which a table's columns have a form.
    :raises UnsupportedTypeError: a column has another type; nothing was sent.
    :raises InvalidInputError: options or columns are invalid; nothing was sent.
    :raises TableMismatchError: another schema, layout or coordination than the table's.
    :raises StoreUnfitError: the store cannot hold the protocol, or cannot hold a second writer.
    :raises JobFencedError: another attempt of the same run opens at the same time, and goes on.
    :raises RecordDamagedError: the table's objects were moved to this root from another one.
    """
    spec = checked(context, spec)
    job = context.job_id()
    recorded_at, listing = yield from All(
        (_write_open_record(context, job, spec), or_error(_list_heads(context, spec)))
    )
    try:
        if isinstance(listing, ZeroRenameError):
            raise listing
        opened = yield from _opened(context, job, spec, listing)
    except ZeroRenameError as error:
        if isinstance(error, OtherJobError):
            error.job = job
        # Nothing but the open record was written: there are no tasks yet.
        left = yield from or_error(iter(Delete(context.root.open_key(job))))
        if isinstance(left, ZeroRenameError):
            # Why the job was not opened counts.
            logger.warning(
                "%s: the open record of job %s stays for recovery: %s", context.root.url, job, left
            )
        raise
    if opened.repeated is not None:
        yield from Delete(context.root.open_key(job))
    # The earlier time: a replace that the listing does not show came after its first page.
    return replace(opened, opened_at=min(recorded_at, listing.since))


def checked(context: Context, spec: JobSpec) -> JobSpec:
    """Check a job's specification without a request; return it with column types that tables store.

    :raises UnsupportedTypeError: a column has no type that a file could hold.
    :raises InvalidInputError: options or columns are invalid.
    """
    spec = replace(spec, schema=normalise(spec.schema))
    check_partitioning(spec.schema, spec.partition_by or ())
    check_options(spec.files)
    if spec.base is not None:
        spec.base.check_table(context.root.url)
    if not spec.publish:
        raise InvalidInputError(
            "publish=False is given for a table of directories, whose files are there for whoever "
            "lists them once they are complete; nothing was sent.",
            table=context.root.url,
            remedy="Write a Delta table, by layout='delta', or leave publish out.",
        )
    if spec.data_root is not None:
        raise InvalidInputError(
            f"data_root={spec.data_root} is given for a table of directories, whose files lie "
            "where whoever lists the table finds them; nothing was sent.",
            table=context.root.url,
            remedy="Write a Delta table, by layout='delta', or leave data_root out.",
        )
    if spec.coordination is Coordination.NONE:
        check_uncoordinated(context.root, spec)
    return spec


def _list_heads(context: Context, spec: JobSpec) -> Step[HeadListing]:
    if spec.coordination is Coordination.NONE:
        return HeadListing({}, None, math.inf)
    return (yield from list_heads_and_index(context))


def _opened(context: Context, job: str, spec: JobSpec, listing: HeadListing) -> Step[OpenedJob]:
    """Read everything else that a job needs. Its open record is there, and the heads are listed.

    A job that changes the table's record lists the open jobs after that: a job that has not seen
    the change is among them. A job that had moved a head when this job listed it is among the jobs
    that are open afterwards, or it has finished.
    """
    if spec.coordination is Coordination.NONE:
        return (yield from _opened_uncoordinated(context, job, spec))
    found, others, run, read = yield from All(
        (
            find_table(context),
            list_open(context),
            _run_state(context, spec),
            _sure_heads(context, spec, listing),
        )
    )
    spec = in_its_columns(found, spec)
    table, new = yield from _table_for(context, found, job, spec, tuple(listing.heads.values()))
    spec = spelled_for(spec, table.schema, table.partition_by)
    spec = replace(spec, files=spec.files.encrypted_by(table.encryption))
    context = context.of(table)
    others.discard(job)
    if others and (spec.idempotency_key is not None or not table.facts.atomic):
        others = yield from _look_at_others(context, job, spec, others)
        if run is not None:
            run = yield from read_head(context, run.slot)
    earlier = yield from _earlier_commit(context, run)
    opened = OpenedJob(
        job=job,
        root=context.root,
        spec=spec,
        schema=_schema(context, table, spec),
        schema_version=table.schema_version,
        partition_by=table.partition_by,
        facts=table.facts,
        base={name: listed.etag for name, listed in listing.heads.items()},
        read=read,
        settles=spec.settles,
        run_base=run.etag if run else None,
        others=frozenset(others),
        new_table=new,
        index_behind=is_behind(listing, context.limits),
    )
    if earlier is not None and spec.on_repeat is OnRepeat.SKIP:
        return replace(opened, repeated=committed(context, earlier, repeated=True))
    if earlier is not None and spec.on_repeat is OnRepeat.REPLACE_OWN:
        since = yield from _own_since(context, earlier.decision)
        opened = replace(opened, repeat_of=earlier.decision.job, own_since=since)
    last = None if earlier is None else _last_job(earlier.decision)
    opened = yield from as_planned(opened, last, context.write_id)
    refuse_superseded(opened, read.values())
    return opened


def _last_job(decision: Decision) -> RunsLastJob:
    versions = {it.partition: it.base_version + 1 for it in decision.partitions}
    return RunsLastJob(decision.job, decision.owner.cleared, versions)


def _sure_heads(
    context: Context, spec: JobSpec, listing: HeadListing
) -> Step[dict[str, HeadState]]:
    """Read the heads that the job will certainly claim, to spare its commit reading them.

    Only heads without a claim that are still as listed are returned; none if they are many. The
    claim itself reports what cannot be read here.
    """
    sure = sorted(spec.sure_partitions(listing.heads))
    if len(sure) > _READ_AHEAD:
        return {}
    listed = [listing.heads[name] for name in sure]
    found = yield from All(tuple(or_error(read_head(context, head.slot)) for head in listed))
    return {
        head.slot.name: state
        for head, state in zip(listed, found, strict=True)
        if isinstance(state, HeadState) and state.etag == head.etag and state.head.claim is None
    }


def _opened_uncoordinated(context: Context, job: str, spec: JobSpec) -> Step[OpenedJob]:
    """Open a job of coordination *none*: read only the table, no heads and no other jobs."""
    warn_uncoordinated(context.root)
    found = yield from find_table(context)
    spec = in_its_columns(found, spec)
    table, new = yield from _table_for(context, found, job, spec, ())
    spec = spelled_for(spec, table.schema, table.partition_by)
    spec = replace(spec, files=spec.files.encrypted_by(table.encryption))
    return OpenedJob(
        job=job,
        root=context.root,
        spec=spec,
        schema=table.schema,
        partition_by=table.partition_by,
        facts=table.facts,
        new_table=new,
    )


def _table_for(
    context: Context,
    found: FoundTable | None,
    job: str,
    spec: JobSpec,
    heads: Collection[ListedHead],
) -> Step[tuple[TableRecord, TableRecord | None]]:
    """Return the table that a job writes into, and the same again if its commit is to make it."""
    if found is None or not found.counts:
        new = yield from design_table(context, job, spec, heads)
        return new, new
    found.record.check_place(context.root)
    try:
        check_table(context.root, found.record, spec)
    except TableMismatchError:
        if Coordination.NONE in (spec.coordination, found.record.coordination):
            raise
        if not (yield from is_unused(context, job)):
            raise
        new = yield from design_table(context, job, spec, heads)
        new = replace(new, instead=replace(found.record, first=None).encode().decode())
        return new, new
    named = spec.files.encrypted or found.record.encryption or spec.default_encryption
    yield from confirm(context.of(found.record), found, named)
    return replace(found.record, encryption=named), None


def _schema(context: Context, table: TableRecord, spec: JobSpec) -> pa.Schema:
    """Return the columns of the job's files."""
    if spec.schema_mode is SchemaMode.KEEP:
        return table.schema
    changed = overwritten if spec.schema_mode is SchemaMode.OVERWRITE else evolved
    return changed(table.schema, spec.schema, table.partition_by, url=context.root.url)


def _write_open_record(context: Context, job: str, spec: JobSpec) -> Step[float]:
    """Write the open record; return the time of that, by the store's clock."""
    write_id = context.write_id()
    record = OpenRecord.of(job, write_id, spec)
    conditional = spec.coordination is Coordination.STORE
    put = Put(context.root.open_key(job), record.encode(), if_none_match=conditional)
    outcome = yield from put_record(put, write_id)
    if isinstance(outcome, Uncertain) and outcome.cause == "NotImplemented":
        StoreFacts(conditional_put=False).require_coordination(context.root)
    if not isinstance(outcome, Written):
        cause = outcome.cause if isinstance(outcome, Uncertain) else "another object is there"
        raise OutcomeUnknownError(
            f"The store did not confirm the job's open record ({cause}). Nothing else was written.",
            job=job,
            key=put.key,
            remedy="Try again when the store answers; recovery removes the record if it landed.",
        )
    return outcome.date


def _run_state(context: Context, spec: JobSpec) -> Step[HeadState | None]:
    if spec.idempotency_key is None:
        return None
    return (yield from read_head(context, Slot.run(context.root, spec.idempotency_key)))


def _look_at_others(context: Context, mine: str, spec: JobSpec, others: set[str]) -> Step[set[str]]:
    """Fence earlier attempts of this run; refuse a second live writer on a store with unsafe races.

    An earlier attempt is among the jobs that were opened last. If it is not read here, or its
    record cannot be read, it is not fenced here. Then the run's head lets only one of the two
    commit.

    :returns: those of ``others`` that may still be open.
    """
    names = sorted(others)  # By the time of their opening, with which their ids begin.
    if context.facts.atomic:
        names = names[-_LOOKED_AT:]
    found = yield from All(tuple(read_open(context, job) for job in names))
    entries = [entry for entry in found if entry is not None]
    idempotency_key = spec.idempotency_key
    tries = [
        e
        for e in entries
        if e.record and idempotency_key is not None and e.record.idempotency_key == idempotency_key
    ]
    if tries:
        yield from _give_way(context, mine, tries)
    for entry in tries:
        assert entry.record is not None
        aborting = abort_job_id(context, entry.record, entry.last_modified)
        yield from about_other(context.root, entry.job, aborting)
    alive = others.difference(names) | {entry.job for entry in entries if entry not in tries}
    if alive and not context.facts.atomic:
        yield from _refuse_second_writer(context, entries, alive)
    return alive


def settle_aborted(context: Context, opened: OpenedJob) -> Step[None]:
    """Clean up after aborted jobs that were open when this one opened.

    The process of such a job may have been killed during its own clean-up. Only the jobs opened
    last are read, by a request for each. What cannot be cleaned up now is logged, and does not stop
    the caller's own work.
    """
    context = context.of(opened)
    names = sorted(opened.others)[-_LOOKED_AT:]
    found = yield from All(tuple(or_error(_settle_aborted(context, job)) for job in names))
    for job, error in zip(names, found, strict=True):
        if error is not None:
            logger.warning(
                "%s: what is left of job %s, which is aborted, stays for the next one or for "
                "recovery: %s",
                context.root.url,
                job,
                error,
            )


def _settle_aborted(context: Context, job: str) -> Step[None]:
    decided = yield from or_damage(read_decision(context, job))
    if isinstance(decided, Decided) and not decided.decision.is_commit:
        entry = yield from read_open(context, job)
        if entry is not None and entry.record is not None:
            yield from abort_job_id(context, entry.record, entry.last_modified)


def _give_way(context: Context, mine: str, tries: list[OpenEntry]) -> Step[None]:
    """Let only the last of the run's attempts go on that open together.

    Otherwise each would fence the other.

    :raises JobFencedError: another attempt opened later, or has fenced this one.
    """
    own = yield from read_open(context, mine)
    for entry in tries:
        if own is None or entry.order > own.order:
            if own is not None and (yield from or_damage(read_decision(context, entry.job))):
                continue  # It has decided: it is no longer at work, or its work is reported below.
            raise JobFencedError(
                f"Another attempt of this run, job {entry.job}, was opened at the same time, "
                "and that one goes on. This one wrote nothing.",
                job=mine,
                remedy="Nothing is to be done if that attempt commits; else run the job again.",
            )


def _refuse_second_writer(
    context: Context, entries: list[OpenEntry], alive: set[str]
) -> Step[None]:
    for entry in entries:
        if entry.job not in alive:
            continue
        decided = yield from or_damage(read_decision(context, entry.job))
        if decided is not None or entry.silent_for > entry.patience:
            continue
        raise StoreUnfitError(
            "Another job is open on this table, and this store "
            f"({context.facts.server or 'unnamed'}) checks and carries out conditional writes in "
            "two steps: two writers may both win. Nothing was written.",
            job=entry.job,
            remedy="Wait for that job, or recover it if it is dead (zero-rename recover "
            f"{context.root.url} --apply), and let one job write at a time (one active run of a "
            "DAG); for parallel writers use "
            f"{other_stores(context.facts.server)}.",
        )


def _own_since(context: Context, last: Decision) -> Step[int]:
    """Find the ``run_version`` of the oldest attempt whose rows a new attempt replaces.

    Requests: none, except after attempts by an earlier version of this package, whose decisions
    name only the attempts whose files each one had found: a GET for each of these.
    """
    since, asked = last.run_version, [last]
    seen = {last.job}
    while asked:
        said = asked.pop()
        since = min(since, said.run_version)
        if said.own_since is not None:
            since = min(since, said.own_since)
            continue
        for job in {job for change in said.partitions for job in change.dropped_jobs} - seen:
            seen.add(job)
            decided = yield from read_decision(context, job)
            asked += [] if decided is None else [decided.decision]
    return since


def _earlier_commit(context: Context, run: HeadState | None) -> Step[Decided | None]:
    """Find the job that has done this run's work, and finish it.

    :raises OtherJobError: it cannot be finished; nothing of the job that opens is visible.
    :raises DamagedError: the decision of that job is missing.
    """
    if run is None:
        return None
    decided: Decided | None = None
    if run.head.claim is not None:
        # Perhaps an attempt died after it had decided its commit, and before it applied it.
        decided = yield from read_decision(context, run.head.claim)
    if (decided is None or not decided.decision.is_commit) and run.head.last_job is not None:
        decided = yield from read_decision(context, run.head.last_job)
        if decided is None:
            raise DamagedError(
                "An earlier attempt of this run has committed, and its decision is gone: this one "
                "would load its rows a second time. Nothing was written.",
                job=run.head.last_job,
                key=context.root.decision_key(run.head.last_job),
                remedy="Restore the object from a version or backup, or write under another "
                "idempotency key once you know whether the rows are there.",
            )
    if decided is None or not decided.decision.is_commit:
        return None
    still_open = yield from read_open(context, decided.decision.job)
    if still_open is not None or run.head.claim == decided.decision.job:
        yield from about_other(context.root, decided.decision.job, finish(context, decided))
    return decided
