"""First job of a table: it designs the table, in agreement with the files on disk, and makes it.

The commit of its first job makes a table. Until then only the job itself says what the table will
be, so a job that fails leaves nothing to agree with. Just before it decides, the job writes
``table.json`` with its own id as *first*. The record counts as soon as that job is committed; until
then it is treated as missing. So of several first jobs that race, each decides under a record that
no other process can remove: its own, or one that counts and that it agrees with.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import DamagedError, StoreRefusedError, StoreUnreachableError, TableMismatchError
from ..format.job_spec import Coordination, JobSpec, SchemaMode
from ..format.layout import TableRoot
from ..format.records.head import HeadState
from ..format.records.table_record import TableRecord
from ..format.schema.compatibility import check_same, check_types, find_column
from ..format.schema.directory import Directory
from ..format.schema.evolution import evolved, lacked_of, lacking, overwritten
from ..format.schema.hive_paths import normalise_partition
from ..format.schema.lost_records import refuse_orphans
from ..format.schema.row_metadata import renamed
from ..format.schema.spark_types import in_own_types
from ..store.conditional_put import NotWritten, Uncertain, Written, put_record, write_id_of
from ..store.encryption import Encryption
from ..store.requests import All, Put, Step
from .found_files import (
    check_layout,
    check_no_buckets,
    columns_beside,
    layout_of,
    list_directory,
    replaces_all,
)
from .others import about_other, outwait
from .state.context import Context
from .state.decide import not_confirmed, read_decision
from .state.found_table import (
    FoundTable,
    find_table,
    is_unused,
    refuse_below_swept,
    refuse_partition_folder,
)
from .state.heads import ListedHead, read_head
from .state.job_state import OpenedJob
from .state.probe import probe

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("zero_rename.committer.commit.first_job")


def design_table(
    context: Context, job: str, spec: JobSpec, listed: Iterable[ListedHead]
) -> Step[TableRecord]:
    """Design the table that a first job will make.

    Only the probe's objects are written, and they are removed again.

    :param listed: the heads that are there.
    :raises TableMismatchError: files that are there contradict the job's layout or columns.
    :raises InvalidInputError: the root is a partition of a table, or lies below one whose clean-up
        would delete its files, or the job lacks the columns that the directories are partitioned
        by.
    :raises StoreUnfitError: the store cannot hold the protocol.
    :raises DamagedError: there are files of jobs of this package, and no record of them.
    """
    yield from refuse_partition_folder(context)
    yield from refuse_below_swept(context.root)
    directory = yield from list_directory(context)
    states = yield from All(tuple(read_head(context, it.slot) for it in listed))
    heads = [state for state in states if state.head.version]
    if not heads and not replaces_all(spec):
        yield from _refuse_orphans(context, directory)
    if not spec.adopt_partitions:
        check_no_buckets(context.root, directory)
    partition_by = layout_of(directory, spec)
    check_layout(directory, partition_by, spec)
    schema = spec.schema
    if directory.partitions and not replaces_all(spec):
        schema = yield from columns_beside(context, spec, partition_by, directory)
    check_types(schema, partition_by)  # A column of nulls alone has no type for a new table.
    facts = yield from probe(context.root, context.write_id)
    facts.require_listing(context.root)
    if spec.coordination is Coordination.STORE:
        facts.require_coordination(context.root)
    schema = lacking(schema, spec.lacked)
    record = TableRecord(
        "",
        partition_by,
        schema,
        spec.coordination,
        facts,
        first=job,
        encryption=spec.files.encrypted or spec.default_encryption,
        prefix=context.root.prefix,
    )
    return _as_heads_say(context.root, record, heads) if heads else record


def _as_heads_say(root: TableRoot, record: TableRecord, heads: Sequence[HeadState]) -> TableRecord:
    """Return a record to replace one that is missing, with a column version not below any head's.

    If a first job has made the table meanwhile, this record is never written.
    """
    logger.warning("%s: table.json is gone; this job's commit makes it again", root.url)
    return replace(record, schema_version=max(state.head.schema_version for state in heads))


def _refuse_orphans(context: Context, directory: Directory) -> Step[None]:
    """Refuse to begin a table over files of this package's jobs.

    Allowed if the first of these jobs has made the table meanwhile.

    :raises DamagedError: there are such files, and no table counts.
    """
    try:
        refuse_orphans(context.root, directory)
    except DamagedError:
        found = yield from find_table(context)
        if found is None or not found.counts:
            raise


def establish(
    context: Context, opened: OpenedJob, partitions: Collection[str]
) -> Step[FoundTable | None]:
    """Make the table just before the decision, or agree with the one that was made meanwhile.

    :param partitions: those that the job claims; their heads will name the files that are in them.
    :returns: the record that this job made; ``None`` if the table was there.
    :raises TableMismatchError: another first job committed a table that does not fit, or files came
        that contradict this job's.
    :raises StoreUnreachableError: the store did not say whether the record was written; nothing is
        decided.
    """
    if opened.new_table is None:
        return None
    while True:
        found = yield from find_table(context)
        first = None if found is None else found.record.first
        if found is not None and found.counts and not _is_over(opened.new_table, found.record):
            check_table(context.root, found.record, _as_opened(opened))
            return found if first == opened.job else None
        if found is not None and first == opened.job and not found.counts:
            return (yield from _alone(context, opened, found))
        if found is not None and first is not None and context.facts.conditional_put:
            decided = yield from read_decision(context, first)
            if decided is None or decided.decision.is_commit:
                waiting = outwait(context, context.root.table_key, found.etag, first)
                yield from about_other(context.root, first, waiting)
                continue
        made = yield from _make(context, opened, opened.new_table, partitions, found)
        if made is not None:
            return (yield from _alone(context, opened, made))


def _is_over(new: TableRecord, there: TableRecord) -> bool:
    """Return whether a new record is to be written over the one that is there."""
    return new.instead is not None and write_id_of(new.instead.encode()) == there.write_id


def _alone(context: Context, opened: OpenedJob, made: FoundTable) -> Step[FoundTable]:
    """Refuse if another job works under the record that this job has just overwritten.

    Jobs that open from now on do not go by the overwritten record.

    :raises TableMismatchError: there is such a job. Once this job is aborted, that record counts
        again.
    """
    if made.record.instead is not None and not (yield from is_unused(context, opened.job)):
        raise TableMismatchError(
            "The table has other columns or another layout, and another job has begun to write "
            "it. Nothing of this job is visible.",
            remedy="Write with the table's own columns and layout, or to another root.",
        )
    return made


def confirm(
    context: Context, made: FoundTable | None, encryption: Encryption | None = None
) -> Step[None]:
    """Remove from ``table.json`` what readers need only until a job is decided.

    The first job is committed, and so is the job that changed the columns: once the record says so,
    readers need not read their decisions. If an adoption died before its last look, the record lets
    readers list again. The record also keeps the encryption that a job names. If the write fails,
    the next job that opens does it.
    """
    if made is None:
        return
    encryption = encryption or made.record.encryption
    known = made.record.first is None and not made.record.adopting and made.as_stored
    if known and encryption == made.record.encryption:
        return
    record = replace(
        made.record,
        write_id=context.write_id(),
        first=None,
        instead=None,
        unadopted=made.record.unadopted or made.record.adopting,
        adopting=False,
        encryption=encryption,
    )
    conditional = made.etag if context.facts.conditional_put else None
    try:
        yield from Put(context.root.table_key, record.encode(), if_match=conditional)
    except (StoreRefusedError, StoreUnreachableError) as error:
        logger.info("%s: table.json stays as it is: %s", context.root.url, error)


def in_its_columns(found: FoundTable | None, spec: JobSpec) -> JobSpec:
    """Rewrite a job's columns by the table's.

    Names that differ from the table's only in case become the table's. Types that Spark does not
    distinguish become the table's, too. A job that overwrites the columns keeps its own, except the
    names of partition columns.
    """
    if found is None or not found.counts:
        return spec
    overwrites, table = spec.schema_mode is SchemaMode.OVERWRITE, found.record
    if spec.any_case:
        spec = in_case_of(spec, table.partition_by if overwrites else table.schema.names)
    if spec.spark_types and not overwrites:
        spec = replace(spec, schema=in_own_types(spec.schema, table.schema))
    return spec


def in_case_of(spec: JobSpec, theirs: Collection[str]) -> JobSpec:
    """Rename a job's columns that differ from a table's only in case.

    :param theirs: the names of the table's columns.
    """
    own = {name: find_column(name, theirs) or name for name in spec.schema.names}
    return replace(
        spec,
        schema=renamed(spec.schema, list(own.values())),
        partition_by=spec.partition_by and tuple(own[name] for name in spec.partition_by),
    )


def spelled_for(spec: JobSpec, schema: pa.Schema, partition_by: Sequence[str]) -> JobSpec:
    """Return the job with its partitions named as the table stores them, those of its ranks too.

    For example, ``day=01`` of a column of numbers is ``day=1``.

    :raises InvalidInputError: a partition that such a table cannot have.
    """

    def spell(path: str) -> str:
        return normalise_partition(path, schema, partition_by)

    def stored(paths: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if paths is None else tuple(dict.fromkeys(map(spell, paths)))

    return replace(
        spec,
        replace_partitions=stored(spec.replace_partitions),
        only_partitions=stored(spec.only_partitions),
        run_rank=None if spec.run_rank is None else spec.run_rank.spelled(spell),
    )


def check_table(root: TableRoot, table: TableRecord, spec: JobSpec) -> None:
    """Refuse a job that does not fit a table.

    :raises TableMismatchError: another schema, layout or coordination than the table's.
    """
    if table.coordination is not spec.coordination:
        raise TableMismatchError(
            f"The table's coordination is {table.coordination}, the job asks for "
            f"{spec.coordination}. Nothing was written.",
            remedy=f"Give the job coordination={table.coordination}, as the table has it. A table "
            "keeps the coordination that its first job has asked for.",
        )
    if spec.partition_by is not None and spec.partition_by != table.partition_by:
        raise TableMismatchError(
            f"The table is partitioned by {', '.join(table.partition_by) or 'nothing'}, the job "
            f"asks for {', '.join(spec.partition_by) or 'nothing'}. Nothing was written.",
            remedy=f"Write with partitionBy={','.join(table.partition_by)!r}, or leave it out.",
        )
    if spec.schema_mode is SchemaMode.OVERWRITE:
        check_types(spec.schema, table.partition_by)
        overwritten(table.schema, spec.schema, table.partition_by, url=root.url)
    elif spec.schema_mode is SchemaMode.MERGE:
        evolved(table.schema, spec.schema, table.partition_by, url=root.url)
    else:
        check_same(table.schema, spec.schema)
    if not set(lacked_of(table.schema)).issuperset(spec.lacked):
        raise TableMismatchError(
            f"The job's files may lack {', '.join(spec.lacked)}, and those of the table do not. "
            "Nothing was written.",
            remedy="Write to a root where no table is.",
        )


def _as_opened(opened: OpenedJob) -> JobSpec:
    """Return the job as it writes: its files have this layout and these columns already."""
    return replace(opened.spec, schema=opened.schema, partition_by=opened.partition_by)


def _make(
    context: Context,
    opened: OpenedJob,
    table: TableRecord,
    partitions: Collection[str],
    there: FoundTable | None,
) -> Step[FoundTable | None]:
    """Write the table's record as a new one, or over one that never counts.

    :returns: ``None``: another process was faster; read the record again.
    """
    directory = yield from list_directory(context)
    spec = _as_opened(opened)
    check_layout(directory, opened.partition_by, spec)
    others = set(directory.partitions) - set(partitions)
    # An adoption removes ``unadopted`` itself, and lists again afterwards.
    unadopted = bool(others or spec.adopt_partitions) and not replaces_all(spec)
    record = replace(table, write_id=context.write_id(), unadopted=unadopted)
    conditional = context.facts.conditional_put
    put = Put(
        context.root.table_key,
        record.encode(),
        if_none_match=conditional and there is None,
        if_match=there.etag if conditional and there is not None else None,
    )
    outcome = yield from put_record(put, record.write_id)
    match outcome:
        case Written():
            return FoundTable(record, outcome.etag, counts=False)
        case NotWritten():
            return None
        case Uncertain():
            raise (yield from not_confirmed(context, put.key, "table.json", outcome))
