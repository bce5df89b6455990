"""Write of one asset's rows: one job for all partitions that its run asks for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from zero_rename.committer.commit.snapshot import Snapshot
from zero_rename.committer.commit.state.job_state import Committed, PartitionCommit
from zero_rename.committer.errors import InvalidInputError, TableNotFoundError
from zero_rename.committer.format.job_spec import (
    Content,
    FileOptions,
    Mode,
    OnConflict,
    OnRepeat,
    OnSuperseded,
    SchemaMode,
    SuccessMarkers,
    TableLayout,
    choice,
)
from zero_rename.committer.format.layout import UNPARTITIONED
from zero_rename.committer.format.parquet.row_filter import Filter, comparison
from zero_rename.committer.format.read_base import ReadBase
from zero_rename.committer.format.records.success_marker import COMMITTER as NATIVE
from zero_rename.committer.scan.table_scan import TableScan
from zero_rename.committer.store.encryption import Encryption
from zero_rename.orchestration.load_policies import refuse_data_root
from zero_rename.orchestration.merge_arguments import check_merge, read_across
from zero_rename.orchestration.runs.outcomes import (
    settle_former,
    settled,
    tell_narrowing,
    unknown_rows,
)
from zero_rename.orchestration.runs.partitions import made_partitions
from zero_rename.orchestration.runs.reports import commit_report, summary
from zero_rename.tables import DeltaTable

from .asset_step import AssetStep, AssetTable, begin_reads
from .distinct_keys import check_keys
from .event_metadata import (
    PARTITION_ROW_COUNT,
    ROW_COUNT,
    SUPERSEDED_BY,
    VERSION,
    commit_metadata,
    data_version,
    partition_metadata,
    rows_now,
    table_metadata,
)
from .key_paths import Layout, PartitionExpr, key_paths, layout_of, path_columns
from .registration import Registration
from .rows import Rows, is_spark_frame, rows_of
from .waiting import wait_for_others

#: Names in an asset's metadata that say how its rows are written.
CONTENT, SCHEMA_MODE, LAYOUT = "content", "schema_mode", "layout"
#: Remedy if nobody can tell which rows a run has loaded before.
_AFTER_CLEANING = (
    "If these rows are to stay, nothing is to be done. To load the partitions again, materialise "
    "them by a new run: in mode overwrite it replaces them, in mode append these rows stay beside "
    "the new ones."
)


@dataclass(frozen=True)
class WritePolicy:
    """The options of a write.

    :param mode: ``overwrite`` the partitions that the run asks for, or the whole table if it has
        none; or ``append`` to them, or ``merge`` rows into them by key.
    :param merge_on: for a merge, the key's columns; with ``delete_when``, ``latest_by`` and
        ``across_partitions``, like the arguments of :meth:`zero_rename.Table.merge`.
    :param delete_when: a text, such as ``op = 'D'``, or a condition of pyarrow's.
    :param partition_expr: as described in :mod:`.key_paths`.
    :param wait_for_other_runs: seconds that the write waits while another run is at work on its
        partitions; ``None`` and 0: it does not wait.
    :param base: the state of the table that the rows were computed from.
    :param schema_mode: what happens to the table's columns if the rows have others.
    :param registration: where the table is registered afterwards.
    :param inputs: what the rows were computed from; ``None``: what the step has read.
    :param content: how an identical load is recognised, if ``files`` does not say it.
    :param layout: of the table, ``directory`` or ``delta``.
    :param success_markers: where ``_SUCCESS`` goes; ``None``: the layout's default.
    :param secrets: keys of the resource: no request to a service may hold one.
    """

    mode: str = "overwrite"
    partition_expr: PartitionExpr | None = None
    on_conflict: str = OnConflict.FAIL
    on_superseded: str | None = None
    wait_for_other_runs: float | None = None
    data_root: str | None = None
    encryption: Encryption | None = None
    base: Snapshot | ReadBase | None = None
    files: FileOptions | None = None
    schema_mode: SchemaMode = SchemaMode.KEEP
    registration: Registration | None = None
    merge_on: tuple[str, ...] = ()
    delete_when: Filter | str | None = None
    latest_by: str | None = None
    across_partitions: bool | None = None
    inputs: Sequence[Snapshot | TableScan | str] | None = None
    content: Content | str | None = None
    layout: str = TableLayout.DIRECTORY
    success_markers: str | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        :raises InvalidInputError: an option is invalid, or the mode is not one for assets.
        """
        choice("on_conflict", OnConflict, self.on_conflict)
        if self.on_superseded is not None:
            choice("on_superseded", OnSuperseded, self.on_superseded)
        if self.content is not None:
            choice(CONTENT, Content, self.content)
        choice(LAYOUT, TableLayout, self.layout)
        if self.success_markers is not None:
            choice("success_markers", SuccessMarkers, self.success_markers)
        if self.data_root and not self.is_delta:
            refuse_data_root(self.data_root, "Nothing was written")
        if self.across_partitions is not None:
            read_across(self.across_partitions)
        if self.parsed_mode is Mode.FAIL_IF_EXISTS:
            raise InvalidInputError(
                f"An asset is not written with mode={self.mode!r}: it could never be materialised "
                "again. Nothing was written.",
                remedy="Choose overwrite, append or merge.",
            )
        if self.parsed_mode is Mode.MERGE:
            self._check_base()
        check_merge(vars(self), None)

    def _check_base(self) -> None:
        if self.inputs is not None:
            raise InvalidInputError(
                "A merge is given inputs, and is made of all that its step has read. Nothing was "
                "written.",
                remedy="Leave inputs out.",
            )
        if self.base is not None or self.on_conflict != OnConflict.FAIL:
            what = "a base" if self.base is not None else f"on_conflict={self.on_conflict!r}"
            raise InvalidInputError(
                f"A merge is given {what}, and goes by the state that it reads itself. Nothing was "
                "written.",
                remedy="Leave it out: where another job changes a partition, the merge reads anew.",
            )

    @property
    def is_delta(self) -> bool:
        """True if the table is a Delta table."""
        return self.layout == TableLayout.DELTA

    @property
    def waits(self) -> bool:
        """True if the write waits for other runs."""
        return bool(self.wait_for_other_runs)

    @property
    def file_options(self) -> FileOptions | None:
        if self.files is not None or self.content is None:
            return self.files
        return FileOptions(content=Content(self.content))

    @property
    def parsed_mode(self) -> Mode:
        return Mode.parse(self.mode)


@dataclass(frozen=True)
class _Job:
    """A write that is about to begin.

    :param paths: the partitions that the run asks for, by their keys.
    """

    step: AssetStep
    table: AssetTable
    policy: WritePolicy
    layout: Layout
    paths: Mapping[str, str]

    @property
    def partition_by(self) -> tuple[str, ...]:
        known = self.layout.partition_by
        return path_columns(self.paths) if known is None else known

    def schema_of(self, rows: Rows) -> pa.Schema:
        """Return the columns to write: the rows' columns, or the table's if there are no rows."""
        if rows.schema is None:
            return self.table.schema
        return self.layout.schema if rows.empty else rows.schema

    @property
    def named(self) -> tuple[str, ...] | None:
        """The partitions that may be written; ``None`` for an asset without partitions."""
        return None if self.step.keys is None else tuple(self.paths.values())

    @property
    def policies(self) -> dict[str, Any]:
        """The arguments that a job and a merge have in common."""
        return {
            "partition_by": self.partition_by,
            "only_partitions": self.named,
            "schema_mode": self.policy.schema_mode,
            "files": self.policy.file_options,
            "idempotency_key": self.step.idempotency_key,
            "on_repeat": OnRepeat.REPLACE_OWN,
            "owner": self.step.owner,
            "code_version": self.step.code_version,
            **({"data_root": self.policy.data_root} if self.policy.is_delta else {}),
            **({"success_markers": markers} if (markers := self.policy.success_markers) else {}),
        }


def write_asset(step: AssetStep, table: AssetTable, data: Any, policy: WritePolicy) -> Committed:
    """Write an asset's rows by one job, and report the result in the asset's events.

    If the same chain of retries has committed the load before, that is reported, and nothing is
    written. What another run under the same root committed is replaced.

    :param data: as for :func:`.rows.rows_of`, or a Spark data frame.
    :raises InvalidInputError: nothing was written; also if this very step has written the asset
        before.
    :raises ZeroRenameError: as :meth:`zero_rename.Table.job`.
    """
    began = time.monotonic()
    begin_reads(step.step)

    def paths_of_table() -> dict[str, str]:
        return asset_paths(step, policy, _layout(table, None))

    earlier = earlier_commit(step, table, paths_of_table)
    if earlier is not None:
        committed, paths = earlier, paths_of_table()
    else:
        rows = None if is_spark_frame(data) else rows_of(data)
        layout = _layout(table, _spark_schema(data) if rows is None else _schema(step, table, rows))
        paths = asset_paths(step, policy, layout)
        job = _Job(step, table, policy, layout, paths)
        _wait(job)
        committed = _write_spark(job, data) if rows is None else _write(job, rows)
    if policy.is_delta:
        settle_former(table, step)
    tell(step, table, committed, paths, policy, time.monotonic() - began)
    return committed


def asset_paths(step: AssetStep, policy: WritePolicy, layout: Layout) -> dict[str, str]:
    """Return the partitions that a step's run asks for, by their keys.

    :raises InvalidInputError: as :func:`.key_paths.key_paths`; or, in mode ``overwrite``, two keys
        of this asset, in any runs, have one partition: each run would replace the rows of the
        other.
    """
    asset, expr = step.asset.to_user_string(), policy.partition_expr
    paths = key_paths(asset, step.keys, step.partitions_def, expr, layout)
    if policy.parsed_mode is Mode.REPLACE and paths:
        check_keys(asset, step.partitions_def, expr, layout, step.step.instance)
    return paths


def _layout(table: AssetTable, schema: pa.Schema | None) -> Layout:
    """Return the columns of the table; of the rows, if they are to make it."""
    try:
        return layout_of(table, schema)
    except TableNotFoundError:
        if schema is None:
            raise
        return Layout(schema, None)


def _schema(step: AssetStep, table: AssetTable, rows: Rows) -> pa.Schema | None:
    """Return the rows' columns; ``None``: they have none, so the table's columns are used.

    :raises InvalidInputError: there is no table either, or a column has no type.
    """
    if not rows.empty:
        return rows.schema
    untyped = rows.schema is None or not len(rows.schema) or pa.null() in rows.schema.types
    if untyped and not table.exists():
        raise InvalidInputError(
            f"There are no rows for the asset {step.asset.to_user_string()!r}, and no table yet: "
            "nothing says what its columns are. Nothing was written.",
            table=table.root.url,
            remedy="Begin with a partition that has rows, or return an empty pyarrow Table with a "
            "schema.",
        )
    return rows.schema


def earlier_commit(
    step: AssetStep, table: AssetTable, paths: Callable[[], Mapping[str, str]]
) -> Committed | None:
    """Finish and return what this chain of retries has committed before. ``None``: nothing, or the
    run's range of partitions has new keys since.

    :param paths: returns the partitions that the run asks for, by their keys.
    :raises CommitConflictError: it has committed, and nobody can tell what.
    """
    job = table.job_of_key(step.idempotency_key)
    if job is None and isinstance(table, DeltaTable) and table.has_done(step.idempotency_key):
        raise unknown_rows(table, step.idempotency_key, _AFTER_CLEANING)
    owner = None if job is None else table.owner_of(job)
    step.refuse_second(owner, table.root, job)
    if job is None or owner is None or not step.retries(owner):
        return None
    committed = settled(table, job)
    written = {it.partition for it in committed.partitions}
    if not step.has_keys_of(owner) and not written.issuperset(paths().values()):
        return None
    step.step.log.warning(
        f"{table.root.url}: job {job} of attempt {owner.try_number} in run {owner.run_id} has "
        "committed these partitions already; nothing is written. To load them anew, materialise "
        "them by a new run."
    )
    return replace(committed, repeated=True)


def _wait(job: _Job) -> None:
    policy, step = job.policy, job.step
    if not policy.waits:
        return
    key, tried = step.idempotency_key, step.try_number > 1
    before, cleared = job.table.job_of_key(key), step.owner.cleared
    planned = tell_narrowing(job.table, key, before, tried, cleared)
    makes, longest = made_partitions(job.named or (), planned), policy.wait_for_other_runs
    wait_for_others(step, job.table, makes, longest, policy.parsed_mode, policy.on_conflict)


def _write(job: _Job, rows: Rows) -> Committed:
    policy, mode = job.policy, job.policy.parsed_mode
    if mode is Mode.MERGE:
        return _merge(job, rows)
    replacing = mode is Mode.REPLACE
    write = job.table.job(
        job.schema_of(rows),
        mode=mode,
        replace_partitions=job.named if replacing else None,
        replace_table=replacing and job.named is None,
        on_conflict=policy.on_conflict,
        on_superseded=policy.on_superseded or OnSuperseded.FAIL,
        run_rank=job.step.run_rank(job.paths),
        base=policy.base,
        inputs=policy.inputs,
        **job.policies,
    )
    with write:
        job.step.refuse_beside(job.table)
        for batch in rows.batches:
            write.write(batch)
    assert write.committed is not None
    return write.committed


def _merge(job: _Job, rows: Rows) -> Committed:
    policy = job.policy
    words: dict[str, Any] = {
        "delete_when": policy.delete_when,
        "latest_by": policy.latest_by,
        "across_partitions": policy.across_partitions is True,
    }
    if rows.empty:  # An empty frame may not even have these columns.
        given, words = job.schema_of(rows).empty_table(), {}
    else:
        batches = [pa.Table.from_batches([batch]) for batch in rows.batches]
        given = pa.concat_tables(batches, promote_options="permissive")
    if isinstance(words.get("delete_when"), str):
        words["delete_when"] = comparison(words["delete_when"], given.schema, "delete_when")
    done = job.table.merge(given, policy.merge_on, **words, **job.policies)
    assert done.committed is not None  # With an idempotency key there is always a job.
    return done.committed


def _spark_schema(frame: Any) -> pa.Schema:
    from zero_rename.spark.types import arrow_schema

    return arrow_schema(frame.schema)


def _write_spark(job: _Job, frame: Any) -> Committed:
    """Write a Spark data frame by ``save()``, in this process's Spark session."""
    from zero_rename.spark import save

    owner, policy = job.step.owner, job.policy
    options = {
        "idempotency_key": job.step.idempotency_key,
        "onRepeat": OnRepeat.REPLACE_OWN,
        "onConflict": policy.on_conflict,
        "onSuperseded": policy.on_superseded,
        "successMarkers": policy.success_markers,
        "runRank": job.step.run_rank(job.paths),
        "dag": owner.dag_id,
        "run": owner.run_id,
        "task": owner.task_id,
        "tryNumber": str(owner.try_number),
        "series": owner.series,
        "dataRoot": policy.data_root,
        "defaultEncryption": policy.encryption,
        "codeVersion": job.step.code_version,
        **_file_options(policy),
    }
    options = {name: str(value) for name, value in options.items() if value is not None}
    if policy.parsed_mode is Mode.MERGE:
        return _merge_spark(job, frame, options)
    options["schemaMode"] = str(policy.schema_mode)
    if policy.parsed_mode is Mode.REPLACE and job.named is None:
        options["replaceTable"] = "true"
    committed = save(
        frame,
        job.table.root.url,
        partition_by=job.partition_by,
        mode=policy.parsed_mode,
        partitions=job.named,
        committer=NATIVE,
        layout=policy.layout,
        base=policy.base,
        options=options,
    )
    # save() returns a commit: the committer is not one of Hadoop's, and it publishes at once.
    assert isinstance(committed, Committed)
    return committed


def _merge_spark(job: _Job, frame: Any, options: dict[str, str]) -> Committed:
    from zero_rename.spark import merge

    policy = job.policy
    if not isinstance(policy.delete_when, str | None):
        raise InvalidInputError(
            "delete_when= is no text, and the rows are a Spark data frame; nothing was written.",
            table=job.table.root.url,
            remedy="Give it in Spark's SQL: delete_when=\"op = 'D'\".",
        )
    if job.named is not None:
        options["onlyPartitions"] = json.dumps(job.named)
    done = merge(
        frame,
        job.table.root.url,
        on=policy.merge_on,
        delete_when=policy.delete_when,
        latest_by=policy.latest_by,
        across_partitions=policy.across_partitions is True,
        schema_mode="merge" if policy.schema_mode is SchemaMode.MERGE else None,
        partition_by=job.partition_by,
        layout=policy.layout if policy.is_delta else None,
        options=options,
    )
    assert done.committed is not None  # With an idempotency key there is always a job.
    return done.committed


def _file_options(policy: WritePolicy) -> dict[str, str]:
    """Return the data source's options for the content of files.

    :raises InvalidInputError: the policy has options that a Spark data frame cannot be written
        with.
    """
    for name, value in {"files": policy.files, "inputs": policy.inputs}.items():
        if value is not None:
            raise InvalidInputError(
                f"{name}= is not for Spark data frames; nothing was written.",
                remedy="Leave it out, or call save() in an application of its own.",
            )
    return {} if policy.content is None else {CONTENT: policy.content}


def tell(
    step: AssetStep,
    table: AssetTable,
    committed: Committed,
    paths: Mapping[str, str],
    policy: WritePolicy,
    seconds: float,
) -> None:
    """Put what a job did into the events of each partition, with the version of its rows; and
    register the table in a catalog, if one is named."""
    root = table.root
    common: dict[str, Any] = {
        **table_metadata(root, table.schema),
        **commit_metadata(root, committed),
        "zero_rename/seconds": round(seconds, 3),
        "zero_rename/repeated": committed.repeated,
    }
    if policy.registration is not None:
        common |= policy.registration.tell(step, table)
    step.note_told(root)
    context, mode = step.step, policy.parsed_mode
    changed = {partition.partition: partition for partition in committed.partitions}
    # Other runs may have changed these partitions since an earlier attempt committed; and a rerun
    # that settles a conflict has left those that are not in the conflict as they were.
    counts_anew = committed.repeated or committed.narrows is not None
    now = rows_now(table, paths.values()) if counts_anew else {}
    for path in (UNPARTITIONED,) if step.keys is None else ():
        if path in changed:
            done = partition_metadata(root, changed[path], replaced=mode is not Mode.APPEND)
            common |= _counted_now(done, ROW_COUNT, path, now)
    context.add_asset_metadata(common, step.asset)
    for key, path in paths.items():
        # An append changes only partitions that it has rows for, a merge those whose rows change.
        done = changed.get(path) or PartitionCommit(path, 0, 0, 0, 0, 0)
        newer = committed.superseded.get(path)
        whole = mode is Mode.REPLACE or (mode is Mode.MERGE and path in changed)
        told = partition_metadata(root, done, replaced=whole and newer is None)
        told = _counted_now(told, PARTITION_ROW_COUNT, path, now)
        if newer is not None:
            told[SUPERSEDED_BY] = newer
        if path not in changed:
            del told[VERSION]
        context.add_asset_metadata(told, step.asset, key)
    context.set_data_version(step.asset, data_version(table, paths.values()))
    context.log.info(summary(commit_report(committed)))


def _counted_now(
    told: dict[str, Any], name: str, path: str, now: Mapping[str, int | None]
) -> dict[str, Any]:
    """Return metadata of a partition with the number of rows that it holds now.

    :param name: of that number in the metadata.
    :param now: the number by partition; empty: the job's number is true.
    """
    if name not in told or path not in now:
        return told
    rows = {name: now[path]}
    return {**told, **rows} if rows[name] is not None else {k: told[k] for k in told if k != name}
