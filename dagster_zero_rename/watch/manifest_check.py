"""Asset check of a table's records: the job is committed, its files are there, there are enough
rows."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import dagster as dg

from zero_rename.committer.commit.state.job_state import JobState
from zero_rename.committer.errors import InvalidInputError, counted
from zero_rename.committer.format.layout import UNPARTITIONED
from zero_rename.committer.format.records.data_file import rows_of
from zero_rename.committer.format.records.success_marker import COMMITTER as NATIVE
from zero_rename.committer.store.listing import list_objects
from zero_rename.committer.store.requests import All
from zero_rename.committer.table import Table
from zero_rename.orchestration.job_query import READY
from zero_rename.orchestration.partitions_query import PartitionsQuery
from zero_rename.s3a.hadoop.settings import check_committer
from zero_rename.s3a.runs.try_record import is_of
from zero_rename.tables import DeltaTable, Since

from ..asset_step import AssetTable
from ..event_metadata import DECIDED, job_of
from .asset_reference import RESOURCE, AssetLike, AssetReference

#: The most partitions that a result shows.
_SHOWN = 100


@dataclass(frozen=True)
class _PartitionRecord:
    """The facts about one partition from the table's records, and its faults.

    :param job: of its latest materialisation. With Hadoop's committers, the job that wrote it last;
        ``None`` if no record names it.
    :param version: 0 with Hadoop's committers.
    :param rows: ``None``: they were not counted.
    :param wrong: the faults; empty if there are none.
    """

    partition: str
    job: str | None
    version: int
    files: int
    rows: int | None
    wrong: tuple[str, ...]

    def as_row(self) -> dict[str, Any]:
        """Return it as a row of the check's table."""
        return {**asdict(self), "job": self.job or "", "wrong": "; ".join(self.wrong)}


def manifest_check(
    asset: AssetLike,
    *,
    min_rows: int = 0,
    min_files: int | None = None,
    min_partitions: int | None = None,
    committer: str | None = None,
    require_manifest: bool = True,
    blocking: bool = False,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    table: str | None = None,
    partitions_def: dg.PartitionsDefinition | None = None,
    name: str = "manifest",
    resource_key: str = RESOURCE,
) -> dg.AssetChecksDefinition:
    """Make a check that the job of a materialisation is committed and finished, and its files are
    there.

    Every file that the table names must be in the store, with the size that was decided. The check
    is about the partitions of its run; in a run of one partition, the result is that partition's.
    It reads records and listings, and no file.

    For a table of one of Hadoop's committers it checks the same as Airflow's
    ``SuccessManifestSensor``: the ledger of loads or a ``_SUCCESS`` names the job that wrote each
    partition last; this is the job of its materialisation, if that names one; and there are as many
    files as the job left. ``min_rows`` then reads the files' footers.

    :param asset: a definition or a key.
    :param min_rows: the least number of rows in each partition.
    :param min_files: the least number of files in each partition.
    :param min_partitions: the least number of partitions of the table that hold files and meet the
        other conditions. The table's partitions are then checked instead of the run's. Only for an
        asset without partitions.
    :param committer: the committer that must have committed: ``zero_rename``, or ``magic``,
        ``directory``, ``partitioned``; ``None``: the resource's.
    :param require_manifest: ``False``: the ``_SUCCESS`` of any job counts, also one of 0 bytes, as
        Spark's plain commit writes it, for the folder that it lies in.
    :param severity: of a failure.
    :param name: the check's.
    :param resource_key: the key of the :class:`~dagster_zero_rename.ZeroRenameResource`.
    :param blocking: if the check fails with severity ``ERROR``, assets that depend on this one are
        not run.
    :param table: the table's name, if it is neither in the asset's metadata nor the asset's key.
    :param partitions_def: the asset's, if only its key is given.
    """
    reference = AssetReference.of(asset, table, partitions_def)
    asked = _Asked(min_rows, min_files, min_partitions, committer, require_manifest)
    asked.check(reference)

    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        resource = getattr(context.resources, resource_key)
        target = reference.read_table(resource)
        if min_partitions is not None:
            return _counted(asked.query(target, resource.committer, ()), target, severity)
        keys = None
        if reference.partitions_def is not None:
            keys = context.partition_keys if context.has_partition_key_range else ()
            keys = keys or (context.partition_key,)
        paths = reference.paths(keys, target)
        jobs = _jobs(reference, context.instance, paths, isinstance(target, DeltaTable))
        query = asked.query(target, resource.committer, tuple(jobs))
        if isinstance(target, DeltaTable):
            found = _look_by_log(target, jobs, query)
        else:
            found = _look(target, jobs, query) if query.is_by_heads else _held(target, jobs, query)
        return _result(list(found), severity)

    with warnings.catch_warnings():
        # Dagster warns that checks with partitions are a preview. Without partitions, the results
        # of all partitions would be mixed.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.asset_check(
            asset=reference.key,
            name=name,
            blocking=blocking,
            required_resource_keys={resource_key},
            partitions_def=reference.partitions_def,
            description="The asset's job is committed, and every file that the table names exists.",
        )(check)


@dataclass(frozen=True)
class _Asked:
    """The options of a check that are about partitions."""

    min_rows: int
    min_files: int | None
    min_partitions: int | None
    committer: str | None
    require_manifest: bool

    def check(self, reference: AssetReference) -> None:
        """Check the options.

        :raises InvalidInputError: they contradict each other or the asset.
        """
        if self.committer is not None:
            check_committer(self.committer)
        if self.committer not in (None, NATIVE) and not self.require_manifest:
            raise InvalidInputError(
                f"committer={self.committer!r} is given with require_manifest=False, and a "
                "_SUCCESS without manifest does not say which committer wrote it.",
                remedy="Leave out committer, which takes any, or require_manifest.",
            )
        if self.min_partitions is not None and reference.partitions_def is not None:
            raise InvalidInputError(
                f"min_partitions={self.min_partitions} counts those of the whole table, and the "
                f"asset {reference.name!r} has partitions of its own.",
                remedy="Leave min_partitions out: each partition of the run is checked.",
            )

    def query(
        self, table: AssetTable, committer: str, partitions: tuple[str, ...]
    ) -> PartitionsQuery:
        """Make the query that checks the partitions.

        :raises InvalidInputError: the options are invalid for the table.
        """
        named = self.committer or committer
        made = PartitionsQuery(
            table.root.url,
            partitions,
            min_rows=self.min_rows or None,
            min_files=self.min_files,
            committer=named if self.require_manifest else NATIVE,
            require_manifest=self.require_manifest,
            min_partitions=self.min_partitions,
            check_files=True,
        )
        made.check()
        return made


def _held(
    table: Table, jobs: Mapping[str, str | None], query: PartitionsQuery
) -> Iterator[_PartitionRecord]:
    """Check partitions that Hadoop's committers wrote."""
    held, lacking = query.judge(table)
    for path, told in jobs.items():
        it = held.get(path)
        job = None if it is None else it.job
        wrong = [lacking[path]] if path in lacking else []
        if told is not None and job is not None and not is_of(told, job):
            wrong.append(f"it holds the rows of job {job}, and job {told} was materialised")
        files, rows = (0, None) if it is None else (it.files, it.rows)
        yield _PartitionRecord(path, job or told, 0, files, rows, tuple(wrong))


def _counted(
    query: PartitionsQuery, table: AssetTable, severity: dg.AssetCheckSeverity
) -> dg.AssetCheckResult:
    """Check that a table has enough partitions."""
    found = query.ask(table)
    report = found.report or {}
    return dg.AssetCheckResult(
        passed=found.state == READY,
        severity=severity,
        description=found.explanation,
        metadata={name: report[name] for name in ("files", "bytes") if report.get(name)}
        | {"partitions": len(report.get("partitions") or ())},
    )


def _jobs(
    reference: AssetReference, instance: dg.DagsterInstance, paths: Mapping[str, str], by_log: bool
) -> dict[str, str | None]:
    """Return the job of the latest materialisation, by partition; ``""`` for that of an entry of a
    log which another engine wrote.

    :param by_log: the table has a log.
    """

    def job(key: str | None) -> str | None:
        said = reference.last_metadata(instance, key) or {}
        return job_of(said) or ("" if by_log and DECIDED in said else None)

    if not paths:
        return {UNPARTITIONED: job(None)}
    return {path: job(key) for key, path in paths.items()}


def _look(
    table: Table, jobs: Mapping[str, str | None], query: PartitionsQuery
) -> Iterator[_PartitionRecord]:
    min_rows, min_files = query.min_rows or 0, query.min_files or 0
    states = {job: _state(table, job) for job in jobs.values() if job is not None}
    snapshot = table.state(list(jobs))
    files = snapshot.by_partition()
    sizes = stored_sizes(table, jobs)
    missing = {file for file in snapshot.files if sizes.get(file.key) != file.size}
    if missing:
        # Files that a job has replaced since then are no longer named.
        missing &= set(table.state({file.partition for file in missing}).files)
    for path, job in jobs.items():
        named = files.get(path, [])
        rows = sum(max(file.rows, 0) for file in named)
        lost = sorted(file.key for file in named if file in missing)
        wrong = [] if job is not None else ["no materialisation names its job"]
        wrong += [states[job]] if job is not None and states[job] else []
        wrong += [f"{counted(len(lost), 'file')} missing or changed: {lost[0]}"] if lost else []
        known = rows_of(named)
        if rows < min_rows:
            others = "" if known is not None else " besides those of files that nobody counted"
            wrong.append(f"{counted(rows, 'row')}{others}, at least {min_rows} are wanted")
        if len(named) < min_files:
            wrong.append(f"{counted(len(named), 'file')}, at least {min_files} are wanted")
        version = snapshot.versions.get(path, 0)
        yield _PartitionRecord(path, job, version, len(named), known, tuple(wrong))


def _look_by_log(
    table: DeltaTable, jobs: Mapping[str, str | None], query: PartitionsQuery
) -> Iterator[_PartitionRecord]:
    """Check partitions of a Delta table. Its log names files and jobs, and a listing of the files'
    folders shows whether they are there.

    :raises InvalidInputError: a ``_SUCCESS``, or another committer by its name, is asked for.
    """
    held, lacking = query.judge(table)
    committed = {job: table.result(job) is not None for job in jobs.values() if job}
    absent = [job for job, is_there in committed.items() if not is_there]
    if absent and table.last_changes((), Since(version=-1))[1].cleaned:
        # Another engine has cleaned the log, so old jobs have no entry, and nothing says who
        # emptied a partition without files. A fence stays in the state.
        committed |= {job: not table.is_fenced(job) for job in absent}
        empty = {path: "0 files" for path in jobs if path not in held}
        wants_files = query.min_rows or query.min_files
        lacking = {
            path: why for path, why in (lacking | empty).items() if wants_files or path not in empty
        }
    for path, job in jobs.items():
        it = held.get(path)
        wrong = ["no materialisation names its job"] if job is None else []
        if job and not committed[job]:
            wrong.append(f"the log has no entry of job {job}")
        wrong += [lacking[path]] if path in lacking else []
        rows, files, version = (0, 0, 0) if it is None else (it.rows, it.files, it.version or 0)
        yield _PartitionRecord(path, job, version, files, rows, tuple(wrong))


def _state(table: Table, job: str) -> str:
    """Return the fault of a job; empty if there is none."""
    state = table.job_state(job)
    if state is not JobState.COMMITTED:
        return f"the job is {state}"
    return "" if table.is_closed(job) else "the job is committed and not applied to its end yet"


def stored_sizes(table: Table, named: Iterable[str]) -> dict[str, int]:
    """Return the sizes of the objects in partitions, by key."""
    prefixes = [table.root.partition_prefix(name) for name in named]

    def listings() -> Any:
        return (yield from All(tuple(list_objects(prefix, direct=True) for prefix in prefixes)))

    return {item.key: item.size for listing in table.run(listings()) for item in listing.objects}


def _result(
    found: Sequence[_PartitionRecord], severity: dg.AssetCheckSeverity
) -> dg.AssetCheckResult:
    wrong = [it for it in found if it.wrong]
    shown = (wrong + [it for it in found if not it.wrong])[:_SHOWN]
    first = f"{wrong[0].partition}: {'; '.join(wrong[0].wrong)}" if wrong else ""
    more = f" And {counted(len(wrong) - 1, 'more partition')}." if len(wrong) > 1 else ""
    return dg.AssetCheckResult(
        passed=not wrong,
        severity=severity,
        description=f"{first}.{more}" if wrong else None,
        metadata={
            "partitions": len(found),
            "rows": sum(it.rows or 0 for it in found),
            "files": sum(it.files for it in found),
            "wrong": len(wrong),
            "report": dg.MetadataValue.table([dg.TableRecord(it.as_row()) for it in shown]),
        },
    )
