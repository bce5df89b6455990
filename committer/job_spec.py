"""What a job is asked to do: mode, conflicts, repeats, markers, and how files are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from .errors import InvalidInputError


class Mode(StrEnum):
    """What happens to files already in a partition that receives rows; others are not touched."""

    APPEND = "append"
    REPLACE = "replace"
    FAIL_IF_EXISTS = "fail-if-exists"


#: What users and Spark call the modes.
MODES: Mapping[str, Mode] = {
    "append": Mode.APPEND,
    "overwrite": Mode.REPLACE,
    "replace": Mode.REPLACE,
    "fail-if-exists": Mode.FAIL_IF_EXISTS,
    "error": Mode.FAIL_IF_EXISTS,
    "errorifexists": Mode.FAIL_IF_EXISTS,
}


class OnConflict(StrEnum):
    """What a job does that finds a partition changed since it opened."""

    FAIL = "fail"
    LAST_WINS = "last_wins"


class DuringApply(StrEnum):
    """What readers that only list may see while a replace is applied: both, or neither."""

    NO_GAP = "no_gap"
    NO_DUPLICATES = "no_duplicates"


class SuccessMarkers(StrEnum):
    """Where ``_SUCCESS`` goes."""

    PARTITION_AND_TABLE = "partition_and_table"
    TABLE = "table"
    NONE = "none"


class OnRepeat(StrEnum):
    """What a job does whose ``once`` key an earlier job has already moved."""

    SKIP = "skip"
    REPLACE_OWN = "replace_own"
    APPEND = "append"


class Coordination(StrEnum):
    """How a table's writers notice each other. ``none``: they do not."""

    STORE = "store"
    NONE = "none"


@dataclass(frozen=True)
class Owner:
    """Who runs a job. Written to its open record and its markers; never credentials."""

    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    map_index: int | None = None
    try_number: int | None = None
    application: str | None = None
    host: str | None = None
    pid: int | None = None


NOBODY = Owner()


@dataclass(frozen=True)
class FileOptions:
    """How data files are written.

    :param compression: Parquet codec: zstd, snappy, gzip, lz4, brotli or none.
    :param rows_per_file: a new file after so many rows; ``None`` is no limit.
    :param bytes_per_file: a new file after about so many bytes.
    :param row_group_rows: rows per row group.
    :param max_open_partitions: at most so many open files per task; rows of further
        partitions wait in a local spill file.
    :param part_bytes: size of an upload's first parts, at least 5 MiB.
    :param storage_class: the objects' storage class; ``None`` leaves it to the bucket.
    :param tags: object tags.
    :param metadata: user metadata, besides the job id that every object carries.
    """

    compression: str = "zstd"
    rows_per_file: int | None = None
    bytes_per_file: int | None = 512 * 1024 * 1024
    row_group_rows: int = 1_000_000
    max_open_partitions: int = 32
    part_bytes: int = 16 * 1024 * 1024
    storage_class: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JobSpec:
    """One write into one table.

    :param schema: all columns, partition columns included, normalised by
        :func:`.compatibility.normalise`.
    :param partition_by: the partition columns, outermost first; ``None`` takes the table's own
        (a new table is then unpartitioned).
    :param replace_partitions: Hive-escaped partition paths that are emptied and marked even if
        no row arrives; rows for any other partition are refused. Only with mode replace.
    :param replace_table: empty every partition. Only with mode replace.
    :param only_partitions: Hive-escaped partition paths; rows for any other are refused, in
        whatever mode. None allows any.
    :param once: the run's key (DAG, run, task, map index; not the try); ``None`` for none.
    :param max_duration: seconds after which a job without a sign of life may be fenced.
    """

    schema: pa.Schema
    mode: Mode = Mode.APPEND
    partition_by: tuple[str, ...] | None = None
    replace_partitions: tuple[str, ...] = ()
    replace_table: bool = False
    only_partitions: tuple[str, ...] = ()
    on_conflict: OnConflict = OnConflict.FAIL
    during_apply: DuringApply = DuringApply.NO_GAP
    success_markers: SuccessMarkers = SuccessMarkers.PARTITION_AND_TABLE
    once: str | None = None
    on_repeat: OnRepeat = OnRepeat.SKIP
    coordination: Coordination = Coordination.STORE
    max_duration: float = 24 * 3600.0
    owner: Owner = NOBODY
    files: FileOptions = FileOptions()

    def __post_init__(self) -> None:
        """Take ``"replace"`` for :attr:`Mode.REPLACE`, and so on.

        :raises InvalidInputError: a word that is none of the choices, or partitions to replace
            that may not be written.
        """
        for name, kind in _CHOICES.items():
            given = getattr(self, name)
            try:
                object.__setattr__(self, name, kind(given))
            except ValueError as error:
                raise InvalidInputError(
                    f"{name} is {given!r}; nothing was sent.",
                    remedy=f"Choose one of {', '.join(kind)}.",
                ) from error
        others = set(self.replace_partitions) - set(self.only_partitions)
        if self.only_partitions and (others or self.replace_table):
            what = sorted(others)[0] if others else "the whole table"
            raise InvalidInputError(
                f"The job replaces {what}, and may write {', '.join(self.only_partitions[:5])} "
                "only; nothing was sent.",
                remedy="Name that partition among those it may write, or do not replace it.",
            )

    @property
    def allowed_partitions(self) -> frozenset[str] | None:
        """The partitions rows may go to; ``None`` for any."""
        return frozenset(self.replace_partitions or self.only_partitions) or None


_CHOICES: dict[str, type[StrEnum]] = {
    "mode": Mode,
    "on_conflict": OnConflict,
    "during_apply": DuringApply,
    "success_markers": SuccessMarkers,
    "on_repeat": OnRepeat,
    "coordination": Coordination,
}
