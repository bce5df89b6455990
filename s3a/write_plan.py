"""Writes that one call of ``zero_rename.spark.save`` makes with an S3A committer: pure decisions.

* An append is one write at the root.
* An overwrite depends on the committer. With partitioned it is one write at the root with conflict
  mode *replace*: at job commit this removes the partitions that received rows. With directory it is
  one write into the folder of each named partition, with the same mode. With magic it is
  Spark's own overwrite of each of these folders, which **deletes first**.
* Fail-if-exists is an append with conflict mode *fail*, or into folders that were seen to be empty.
* An unpartitioned table is one folder.

If no partitions are named, only partitioned can overwrite. Spark's own overwrite would empty
the whole table, and S3A's committers refuse its dynamic overwrite (PathOutputCommitProtocol).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..committer.errors import InvalidInputError, SettingsRefusedError
from ..committer.format.job_spec import Mode
from ..committer.format.layout import TableRoot
from ..committer.format.schema.hive_paths import as_spark_writes, parse_partition
from .hadoop.settings import (
    CONFLICT_KEY,
    CONFLICT_MODE_OF,
    PARTITION_OVERWRITE_KEY,
    REPORT_KEY,
    UNIQUE_KEY,
    UUID_KEY,
    Committer,
)

if TYPE_CHECKING:
    from ..committer.table import Table

#: The writer's option for ``spark.sql.sources.partitionOverwriteMode``, which wins over the
#: setting. Each overwrite sets the option, since the setting holds for all writes of the
#: application.
OVERWRITE_OPTION = "partitionOverwriteMode"
#: Names of the modes for ``DataFrameWriter.mode``.
SAVE_MODES: Mapping[Mode, str] = {
    Mode.APPEND: "append",
    Mode.REPLACE: "overwrite",
    Mode.FAIL_IF_EXISTS: "error",
}


@dataclass(frozen=True)
class PlannedWrite:
    """One write of Spark, which is one job of the committer.

    :param path: the destination, as Spark gets it.
    :param save_mode: the mode that Spark gets, by :data:`SAVE_MODES`. The mode of the load may
        differ; then the committer's conflict mode carries it out.
    :param partition: the partition whose rows are written into its own folder; ``None`` for a
        write at the table's root.
    :param partition_by: for ``DataFrameWriter.partitionBy``.
    :param options: for ``DataFrameWriter.options``; they reach the job's Hadoop configuration.
    :param must_be_empty: prefixes, as whole keys, below which there must be no data.
    """

    path: str
    save_mode: Mode
    partition: str | None = None
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    must_be_empty: tuple[str, ...] = ()

    @property
    def settings(self) -> Mapping[str, str]:
        """The options, each by the name of the setting that it replaces."""
        return as_settings(self.options)


def as_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return options of a writer, each by the name of the setting that it replaces."""
    overwrite = OVERWRITE_OPTION.lower()
    return {
        PARTITION_OVERWRITE_KEY if name.lower() == overwrite else name: value
        for name, value in options.items()
    }


def check_call_options(
    options: Mapping[str, str],
    writes: Iterable[PlannedWrite],
    mode: Mode,
    partition_by: tuple[str, ...],
) -> None:
    """Refuse options of a call of ``save()`` that contradict what its writes need.

    :param options: of the call.
    :param mode: of the call; with it, ``partition_by``.
    :raises InvalidInputError: such an option would be ignored.
    """
    needed = {name: value for it in writes for name, value in it.options.items()}
    needed |= {UNIQUE_KEY: "true", UUID_KEY: "", REPORT_KEY: ""}
    needed.pop(OVERWRITE_OPTION, None)
    if mode is Mode.REPLACE and partition_by:
        needed[OVERWRITE_OPTION] = "dynamic"  # No other partition is emptied.
    own = {name.lower(): value for name, value in needed.items()}
    for name, value in options.items():
        wanted = own.get(name.lower())
        if wanted is None or value.strip().lower() == wanted:
            continue
        meant = f"with mode {mode} needs {wanted!r}" if wanted else "gives each job one of its own"
        raise InvalidInputError(
            f"options[{name!r}] is {value[:200]!r}, and save() {meant}; nothing was written.",
            remedy="Leave that option out.",
        )


def plan(
    committer: Committer,
    mode: Mode,
    root: TableRoot,
    partition_by: tuple[str, ...],
    partitions: tuple[str, ...],
) -> tuple[PlannedWrite, ...]:
    """Plan the writes that load a table.

    :param partitions: the partitions of the load, as Hive-escaped paths; none if its rows may be
        in any.
    :raises InvalidInputError: the partitions do not fit the table's partition columns.
    :raises SettingsRefusedError: the committer cannot carry out the mode.
    """
    for name in partitions:
        if tuple(column for column, _ in parse_partition(name)) != partition_by:
            raise InvalidInputError(
                f"{name!r} is no partition of a table partitioned by "
                f"{', '.join(partition_by) or 'nothing'}; nothing was written.",
                remedy="Name a value for each partition column, in their order.",
            )
        if (written := as_spark_writes(name)) != name:
            raise InvalidInputError(
                f"Spark writes the rows of {name!r} below {written!r}, where an overwrite of the "
                "other folder would leave them; nothing was written.",
                remedy=f"Name it {written!r}; in a partition_format a percent sign is %%.",
            )
    path = f"s3a://{root.bucket}/{root.prefix}"
    conflict = {CONFLICT_KEY: CONFLICT_MODE_OF[mode]} if committer.is_staging else {}
    whole = PlannedWrite(path, Mode.APPEND, partition_by=partition_by, options=conflict)
    by_partition = committer is Committer.PARTITIONED
    if mode is not Mode.APPEND and by_partition and not partition_by:
        raise SettingsRefusedError(
            f"The partitioned committer settles {mode} by partition, and this table has no "
            "partition columns; nothing was written.",
            remedy="Use committer='directory' for an unpartitioned table.",
        )
    if mode is Mode.APPEND or by_partition:
        return (whole,)
    writes = tuple(
        PlannedWrite(f"{path}/{name}", Mode.APPEND, partition=name, options=conflict)
        for name in partitions
    )
    if mode is Mode.FAIL_IF_EXISTS:
        return tuple(_into_empty(root, write) for write in writes or (whole,))
    if partition_by and not writes:
        raise SettingsRefusedError(
            f"[overwrite-unnamed-partitions] With the {committer} committer an overwrite has to "
            "name its partitions: Spark would empty the whole table first, and replaces only the "
            "partitions that have rows (dynamic overwrite) by renaming. Nothing was written.",
            remedy="Name them (partition= or partition_format= of the operator, partitions= of "
            "save()), or use committer='partitioned' or 'zero_rename'.",
        )
    if committer is Committer.DIRECTORY:
        return writes or (whole,)
    static = {OVERWRITE_OPTION: "static"}
    return tuple(replace(w, save_mode=Mode.REPLACE, options=static) for w in writes or (whole,))


def _into_empty(root: TableRoot, write: PlannedWrite) -> PlannedWrite:
    """Make a write of fail-if-exists require an empty folder.

    Spark's own mode *error* only checks whether the path exists, and an empty folder does: a root
    with an earlier job's _SUCCESS or directory marker exists and holds no rows. Directory's
    conflict mode checks again at job set-up.
    """
    below = f"{root.prefix}/{write.partition}/" if write.partition else f"{root.prefix}/"
    appends = dict.fromkeys(write.options, CONFLICT_MODE_OF[Mode.APPEND])
    options = write.options if write.partition else appends
    return replace(write, options=options, must_be_empty=(below,))


def check_destination(table: Table, committer: str) -> None:
    """Refuse a destination if a table has records of its files.

    Hadoop's committers write no such records, and an overwrite by them removes all that lies there,
    the log of another table format included.

    :raises SettingsRefusedError: a table of ``zero_rename``.
    :raises InvalidInputError: a partition's directory of such a table.
    :raises TableMismatchError: a folder of another table format.
    """
    if table.exists():
        raise SettingsRefusedError(
            f"[native-table] This is a table of the zero_rename committer, whose records would not "
            f"name what {committer} writes. Nothing was written.",
            table=table.root.url,
            remedy="Use committer='zero_rename' for it, or another table.",
        )
    table.refuse_folder_of_others()
