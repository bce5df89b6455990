"""Job specification: mode, policies for conflicts and repeats, markers, and options of files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from ..errors import InvalidInputError, first_few
from ..store.encryption import Encryption
from ..store.fast_root import FastRoot
from .code_version import checked_code_version
from .given_numbers import finite_seconds
from .layout import UNPARTITIONED
from .read_base import ReadBase
from .row_changes import ChangeReads, RowChanges
from .run_rank import RunRanks
from .settling import Settling

if TYPE_CHECKING:
    import pyarrow as pa

_C = TypeVar("_C", bound=StrEnum)


class Mode(StrEnum):
    """Mode of a job: the treatment of former files in a partition that receives rows.

    Other partitions are not changed.
    """

    #: Former files stay; the job's files are added.
    APPEND = "append"
    #: The job's files replace the former ones. Users of Spark and Airflow call this ``overwrite``.
    REPLACE = "replace"
    #: The job is refused with :class:`.DestinationExistsError`.
    FAIL_IF_EXISTS = "fail-if-exists"
    #: Rows are matched by key. A submitter asks an application for this mode; no job has it: the
    #: application's job replaces the partitions that change.
    MERGE = "merge"

    @classmethod
    def parse(cls, word: str) -> Mode:
        """Parse a mode, by any of the names in :data:`MODES`; case does not count.

        :raises InvalidInputError: no mode has that name.
        """
        found = MODES.get(word.strip().lower().replace("_", "-"))
        if found is None:
            raise InvalidInputError(
                f"mode={word!r} is unknown; nothing was sent.",
                remedy=f"Choose one of {', '.join(MODES)}.",
            )
        return found


#: Modes by the names that users and Spark give them.
MODES: Mapping[str, Mode] = {
    "append": Mode.APPEND,
    "overwrite": Mode.REPLACE,
    "replace": Mode.REPLACE,
    "fail-if-exists": Mode.FAIL_IF_EXISTS,
    "error": Mode.FAIL_IF_EXISTS,
    "errorifexists": Mode.FAIL_IF_EXISTS,
    "merge": Mode.MERGE,
}


class OnConflict(StrEnum):
    """Policy for a partition that another job has changed since the job opened."""

    #: The job is aborted with :class:`.CommitConflictError`.
    FAIL = "fail"
    #: The job commits after the other one: a replace also replaces the other job's files.
    LAST_WINS = "last_wins"
    #: The job commits after a job of an older run, and gives way to a job of a newer run, no matter
    #: when that run loaded the partition: see :mod:`.run_rank`. For runs of equal rank, as *fail*.
    NEWEST_RUN = "newest_run"


class OnSuperseded(StrEnum):
    """Policy for partitions that a newer run has loaded, under :attr:`OnConflict.NEWEST_RUN`."""

    #: The job is aborted with :class:`.SupersededRunError`.
    FAIL = "fail"
    #: The job leaves these partitions out and writes the others. If there are no others, it is
    #: aborted.
    SKIP = "skip"


class SuccessMarkers(StrEnum):
    """Places in which a job writes ``_SUCCESS``."""

    #: Each partition that the job changes, and the table's root.
    PARTITION_AND_TABLE = "partition_and_table"
    #: The table's root.
    TABLE = "table"
    #: Nowhere.
    NONE = "none"


class Distribute(StrEnum):
    """Distribution of a partition's rows over the tasks of a Spark application."""

    #: As few tasks as the partition's bytes need. Spark brings its rows together first, by a
    #: shuffle.
    PARTITION = "partition"
    #: Each task writes the rows that it has.
    NONE = "none"


class OnRepeat(StrEnum):
    """Policy for a job if an earlier job with the same idempotency key has committed."""

    #: The job writes nothing, and reports what the earlier job committed.
    SKIP = "skip"
    #: The job's files replace those of the run's last job and of the jobs that it had replaced, and
    #: no others.
    REPLACE_OWN = "replace_own"
    #: The job's files are added once more.
    APPEND = "append"


class SchemaMode(StrEnum):
    """Policy for a job with other columns than its table has."""

    #: The table's columns stay; a job with other columns is refused.
    KEEP = "keep"
    #: The table gets the columns that only the job has, and the job's wider types. Columns that the
    #: job lacks are null in its files.
    MERGE = "merge"
    #: The job's columns replace the table's; they need not be compatible. Only in a replace of the
    #: whole table.
    OVERWRITE = "overwrite"


class TableLayout(StrEnum):
    """Layout of a table: what a commit writes, and how readers find the files."""

    #: Files in the partitions' directories, which every engine lists, and this package's own
    #: records.
    DIRECTORY = "directory"
    #: A Delta table, whose log every engine with Delta Lake reads.
    DELTA = "delta"


class Coordination(StrEnum):
    """Coordination of a table's writers."""

    #: By conditional writes. The store has to check and carry them out in one step.
    STORE = "store"
    #: None, for stores without such writes: one writer at a time.
    NONE = "none"


def choice(name: str, kind: type[_C], given: str) -> _C:
    """Parse a member of an enumeration.

    :param name: the parameter's name, for the error.
    :raises InvalidInputError: the enumeration has no such member.
    """
    try:
        return kind(given)
    except ValueError as error:
        raise InvalidInputError(
            f"{name} is {given!r}; nothing was sent.", remedy=f"Choose one of {', '.join(kind)}."
        ) from error


@dataclass(frozen=True)
class Owner:
    """The owner of a job, written to its open record and its markers; never credentials.

    :param dag_id: Airflow's DAG; ``run_id``, ``task_id``, ``map_index`` and ``try_number`` are
        Airflow's, too.
    :param run_id: the run of that DAG.
    :param task_id: the task of that run.
    :param map_index: the index of a mapped task; otherwise ``None`` or -1.
    :param try_number: the number of the attempt, from 1 on.
    :param application: outside Airflow, the program's own name.
    :param host: name of the machine that opened the job.
    :param pid: id of the process there.
    :param series: a text that is the same for all attempts of a task between two clears. Of its
        words, the first one changes when the run is made anew or runs again after its end, the last
        one when the task is cleared.
    """

    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    map_index: int | None = None
    try_number: int | None = None
    application: str | None = None
    host: str | None = None
    pid: int | None = None
    series: str | None = None

    @property
    def cleared(self) -> str | None:
        """Mark that all attempts of a task between two clears share; ``None``: not known."""
        return self.series and self.series.rpartition(" ")[2]

    @property
    def run_began(self) -> str | None:
        """Time at which a run of Airflow began; it changes if the run is made anew.

        ``None``: not known.
        """
        return self.series and self.series.partition(" ")[0]


NOBODY = Owner()
#: Seconds after which a job without heartbeats may be fenced.
MAX_DURATION = 24 * 3600.0


#: Spark's word for ``none``.
_UNCOMPRESSED = "uncompressed"


class Content(StrEnum):
    """Kind of the digest by which an identical recompute of rows is recognised."""

    #: Digest of bytes: the same rows in another order, as after a shuffle, count as different.
    BYTES = "bytes"
    #: Digest of rows, in any order and any files: 0.1 s of CPU for a million rows of five columns.
    ROWS = "rows"


@dataclass(frozen=True)
class FileOptions:
    """Options of the data files that a job writes.

    :param compression: Parquet codec: zstd, snappy, gzip, lz4, brotli or none (uncompressed).
    :param rows_per_file: a new file begins after this number of rows; ``None``: no limit.
    :param bytes_per_file: a new file begins after about this number of bytes; ``None``: no limit.
    :param row_group_rows: rows per row group.
    :param max_open_partitions: most open files per task; rows of further partitions wait in a
        local spill file.
    :param part_bytes: size of an upload's first parts, at least 5 MiB.
    :param storage_class: the objects' storage class; ``None``: the bucket's default.
    :param encryption: encryption by the store, SSE-S3, SSE-KMS or DSSE-KMS, for the files and all
        records. The table keeps it for later jobs and maintenance. ``None``: the table's, or else
        the bucket's default.
    :param encryption_key: the KMS key, by its id, ARN or alias; ``None``: the account's own.
    :param tags: object tags.
    :param metadata: user metadata, besides the job id that every object carries.
    :param content: the digest by which an identical recompute is recognised.
    """

    compression: str = "zstd"
    rows_per_file: int | None = None
    bytes_per_file: int | None = 512 * 1024 * 1024
    row_group_rows: int = 1_000_000
    max_open_partitions: int = 32
    part_bytes: int = 16 * 1024 * 1024
    storage_class: str | None = None
    encryption: str | None = None
    encryption_key: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    content: Content = Content.BYTES

    @property
    def encrypted(self) -> Encryption | None:
        """Encryption that the job names; ``None``: not named.

        :raises InvalidInputError: an unknown encryption, or an invalid key.
        """
        return Encryption.named(self.encryption, self.encryption_key)

    @property
    def encrypted_if_right(self) -> Encryption | None:
        """Encryption that the job names; ``None``: not named, or invalid.

        The job's own checks report an invalid one.
        """
        try:
            return self.encrypted
        except InvalidInputError:
            return None

    def encrypted_by(self, encryption: Encryption | None) -> FileOptions:
        """Return these options with a table's encryption, unless they name their own."""
        if encryption is None or self.encryption is not None:
            return self
        return replace(self, encryption=encryption.algorithm, encryption_key=encryption.key)

    def __post_init__(self) -> None:
        """Convert texts to enumeration members, and Spark's name of a codec to this package's."""
        object.__setattr__(self, "content", choice("content", Content, self.content))
        if self.compression == _UNCOMPRESSED:
            object.__setattr__(self, "compression", "none")


@dataclass(frozen=True)
class JobSpec:
    """The specification of a job: one write into one table.

    :param schema: all columns, partition columns included.
    :param mode: the treatment of files that are already in a partition that receives rows.
    :param partition_by: the partition columns, outermost first; ``None``: the table's own. For a
        new table ``None`` takes them from the directories that are there; if there are none, it is
        unpartitioned.
    :param replace_partitions: Hive-escaped partition paths that are emptied and marked even if no
        row arrives; rows for any other partition are refused. An empty list names no partition: it
        empties nothing, and all rows are refused. ``None``: any. Only with mode replace.
    :param replace_table: empty every partition. Only with mode replace.
    :param replace_where: empty each partition of the table that this collection contains, even one
        that is made while the job claims; rows for any other are refused. Only with mode replace.
    :param only_partitions: Hive-escaped partition paths; in any mode, rows for any other partition
        are refused. With an empty list all rows are refused. ``None``: any.
    :param base: the state that the job has read of the table; ``None``: nothing was read, so the
        state at the job's opening counts.
    :param serializable: when the job holds its claims, the partitions of ``base`` that it does not
        write must also be in the state that it read, and there must be no new partitions.
    :param adopt_partitions: Hive-escaped partition paths whose files from before the table the job
        adopts, even if it has no rows for them. Only with mode append.
    :param keep_replaced: the files that a replace replaces stay in the store until the next replace
        removes them. Readers through the heads do not see them, readers that list do.
    :param merges: by partition, the jobs whose rows this one writes again together with rows of
        others. A later attempt of their runs that replaces its own rows is refused there.
    :param other_rows: the rows that it writes again are others than readers saw there: a choice
        among the rows of former jobs.
    :param sorted_by: columns of the files by which the job's rows come sorted, in one task. The
        files record it; it is not checked.
    :param row_changes: by partition, the numbers of rows that the job inserts, updates, deletes and
        leaves. Such a job has rows of its own, besides those that it writes again.
    :param change_reads: totals of what such a job has read.
    :param settles: by partition, the conflict of runs that the job settles. Its rank is not
        compared there, and the partition must be at its version in ``base``, under any
        ``on_conflict``. A job that neither replaces nor writes rows there only records which run
        stands.
    :param lacked: for a new table: columns that the job's files may lack. The files are those of
        another table to which the columns were added later.
    :param schema_mode: the policy if the job has other columns than the table.
    :param any_case: a column that differs from one of the table's by case alone is that column, as
        in Spark. If the job overwrites the columns, this holds for partition columns alone.
    :param spark_types: columns may have the types in which Spark shows the table's. The writer
        casts their values to the table's own types, and refuses a value that does not fit.
    :param on_conflict: the policy if another job changed a partition since this one opened.
    :param on_superseded: under ``on_conflict=newest_run``, the policy if a newer run loaded a
        partition.
    :param run_rank: the rank of the job's run: a number, a date or a time, or several by partition
        (:class:`.run_rank.RunRanks`); ``None``: the time at which the job began is its rank.
    :param success_markers: the places in which ``_SUCCESS`` is written.
    :param coordination: the coordination of a new table. A job on a table of the other kind is
        refused, so each job into a table of *none* has to name it.
    :param idempotency_key: the run's key (DAG, run, task, map index; not the number of the
        attempt); ``None``: it has none.
    :param on_repeat: the policy if an earlier job with that key has committed.
    :param publish: ``False``: the job's rows are written, and readers do not see them until the job
        is published, by its id. Only in a Delta table.
    :param data_root: for a new Delta table: the place where its jobs' files lie first, as
        ``s3://bucket/prefix``; ``None``: in the table. A job that names another data root than the
        table's is refused.
    :param code_version: the version of the program that computed the rows, by the program's own
        name; ``None``: not given.
    :param max_duration: seconds after which a job without heartbeats may be fenced.
    :param owner: the owner of the job.
    :param files: the options of its files.
    :param default_encryption: encryption by the store if neither the table's record nor ``files``
        names one; ``None``: the driver's.
    """

    schema: pa.Schema
    mode: Mode = Mode.APPEND
    partition_by: tuple[str, ...] | None = None
    replace_partitions: tuple[str, ...] | None = None
    replace_table: bool = False
    replace_where: Collection[str] | None = None
    only_partitions: tuple[str, ...] | None = None
    adopt_partitions: tuple[str, ...] = ()
    keep_replaced: bool = False
    merges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    other_rows: bool = False
    sorted_by: tuple[str, ...] = ()
    row_changes: Mapping[str, RowChanges] = field(default_factory=dict)
    change_reads: ChangeReads | None = None
    settles: Mapping[str, Settling] = field(default_factory=dict)
    lacked: Collection[str] = ()
    schema_mode: SchemaMode = SchemaMode.KEEP
    any_case: bool = False
    spark_types: bool = False
    on_conflict: OnConflict = OnConflict.FAIL
    on_superseded: OnSuperseded = OnSuperseded.FAIL
    run_rank: RunRanks | None = None
    base: ReadBase | None = None
    serializable: bool = False
    success_markers: SuccessMarkers = SuccessMarkers.PARTITION_AND_TABLE
    idempotency_key: str | None = None
    on_repeat: OnRepeat = OnRepeat.SKIP
    publish: bool = True
    coordination: Coordination = Coordination.STORE
    data_root: FastRoot | str | None = None
    code_version: str | None = None
    max_duration: float = MAX_DURATION
    owner: Owner = NOBODY
    files: FileOptions = FileOptions()
    default_encryption: Encryption | None = None

    def __post_init__(self) -> None:
        """Convert texts to enumeration members, such as ``"overwrite"`` to :attr:`Mode.REPLACE`.

        :raises InvalidInputError: an unknown choice; partitions to replace that may not be written,
            or without mode replace; columns to overwrite while former files stay; policies that
            exclude each other; a blank idempotency key; or seconds that are not a finite number.
        """
        object.__setattr__(self, "mode", Mode.parse(self.mode))
        names = column_names("partition_by", self.partition_by)
        object.__setattr__(self, "partition_by", names)
        if self.mode is Mode.MERGE:
            raise InvalidInputError(
                "A job appends or replaces; rows are merged by key. Nothing was sent.",
                remedy="Call merge(), of zero_rename.spark or of a Table, with on=[the key's "
                "columns].",
            )
        choices = {
            it.name: type(it.default) for it in fields(self) if isinstance(it.default, StrEnum)
        }
        if self.run_rank is not None and not isinstance(self.run_rank, RunRanks):
            object.__setattr__(self, "run_rank", RunRanks.of(self.run_rank))
        for name, kind in choices.items():
            object.__setattr__(self, name, choice(name, kind, getattr(self, name)))
        if self.code_version is not None:
            checked_code_version(self.code_version)
        self._check_key()
        object.__setattr__(self, "max_duration", finite_seconds("max_duration", self.max_duration))
        if self.data_root is not None:
            object.__setattr__(self, "data_root", FastRoot.parse(self.data_root))
        self._check_partitions()
        self._check_conflict_policy()
        whole = self.replace_table and self.mode is Mode.REPLACE
        if self.schema_mode is SchemaMode.OVERWRITE and not whole:
            raise InvalidInputError(
                "The job asks for schema_mode=overwrite without replacing the whole table: files "
                "of the former columns would stay. Nothing was sent.",
                remedy="Ask for mode overwrite with replace_table (option replaceTable) as well, "
                "or for schema_mode=merge (option mergeSchema).",
            )

    def _check_key(self) -> None:
        """Refuse an idempotency key that several runs could share, or that no record can hold."""
        key = self.idempotency_key
        if key is None or (isinstance(key, str) and key.strip() and _is_unicode(key)):
            return
        raise InvalidInputError(
            f"Invalid idempotency_key={key!r}: it must be a text that is not blank. Nothing was "
            "sent.",
            remedy="Give a text that is the same for all attempts of a run, and no other run's; or "
            "leave idempotency_key out.",
        )

    def _check_partitions(self) -> None:
        if self.mode is not Mode.REPLACE and (
            self.replace_partitions is not None or self.empties_unnamed
        ):
            what = "partitions" if self.replace_partitions is not None else "what fits a condition"
            what = "the whole table" if self.replace_table else what
            raise InvalidInputError(
                f"The job is to replace {what}, and its mode is {self.mode}. Nothing was sent.",
                remedy='Give mode="overwrite", or leave out what it is to replace.',
            )
        only = self.only_partitions
        others = set(self.replace_partitions or ()).difference(only or ())
        if only is not None and (others or self.empties_unnamed):
            what = "the whole table" if self.replace_table else "all that fits a condition"
            what = sorted(others)[0] if others else what
            raise InvalidInputError(
                f"The job replaces {what}, and may write "
                f"{first_few(only) if only else 'no partition'} only; nothing was sent.",
                remedy="Name that partition among those it may write, or do not replace it.",
            )

    def _check_conflict_policy(self) -> None:
        """Refuse policies for newer runs that the job cannot follow.

        :raises InvalidInputError: the job has such a policy.
        """
        check_superseded(self.on_conflict, self.on_superseded, "nothing was sent")
        if self.on_conflict is not OnConflict.NEWEST_RUN:
            return
        if self.row_changes or self.merges:
            raise InvalidInputError(
                "on_conflict=newest_run is about runs that append or replace whole partitions, and "
                "a merge, an update or a deletion changes rows; nothing was sent.",
                remedy="Let the newest of several rows of a key count: merge with latest_by=<a "
                "column that says when>, and leave on_conflict out.",
            )
        if self.mode is Mode.FAIL_IF_EXISTS:
            raise InvalidInputError(
                "on_conflict=newest_run is about partitions that other runs have loaded, and mode "
                "fail-if-exists writes to none of these; nothing was sent.",
                remedy="Append or replace, or leave on_conflict out.",
            )
        if self.schema_mode is SchemaMode.OVERWRITE and self.on_superseded is not OnSuperseded.FAIL:
            raise InvalidInputError(
                f"on_superseded={self.on_superseded} leaves partitions of newer runs as they are, "
                "and schema_mode=overwrite takes the columns from them; nothing was sent.",
                remedy="Leave on_superseded out: the job is then refused where newer runs have "
                "loaded a partition. Or ask for schema_mode=merge.",
            )

    def emptied(self, every: Iterable[str]) -> set[str]:
        """Return the partitions that the job empties even if no row arrives for them.

        :param every: all partitions of the table.
        """
        if self.replace_where is not None:
            return {name for name in every if name in self.replace_where}
        return set(every) if self.replace_table else set()

    def sure_partitions(self, every: Iterable[str]) -> set[str]:
        """Return the existing partitions that the job changes in any case, if it has rows at all.

        They are those that it replaces, and the only one of an unpartitioned table.

        :param every: all partitions of the table.
        """
        named = {UNPARTITIONED, *(self.replace_partitions or ())}
        return self.emptied(every) | named.intersection(every)

    @property
    def fast(self) -> FastRoot | None:
        """Data root that the job names."""
        return None if self.data_root is None else FastRoot.parse(self.data_root)

    @property
    def empties_unnamed(self) -> bool:
        """True if the job empties partitions that it does not name, so they have to be listed."""
        return self.replace_table or self.replace_where is not None

    @property
    def named_partitions(self) -> tuple[str, ...]:
        """The only partitions that the job may write, if it names any; otherwise empty."""
        return self.replace_partitions or self.only_partitions or ()

    @property
    def allowed_partitions(self) -> Collection[str] | None:
        """Partitions for which the job may have rows; ``None``: any."""
        if self.replace_where is not None:
            return self.replace_where
        named = self.replace_partitions
        named = self.only_partitions if named is None else named
        return None if named is None else frozenset(named)


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_superseded(on_conflict: OnConflict, on_superseded: OnSuperseded, undone: str) -> None:
    """Refuse ``on_superseded=skip`` without ``on_conflict=newest_run``.

    :param undone: what has not happened, for the error: ``nothing was sent``.
    :raises InvalidInputError: the first is given without the second.
    """
    if on_conflict is not OnConflict.NEWEST_RUN and on_superseded is OnSuperseded.SKIP:
        raise InvalidInputError(
            f"on_superseded={on_superseded} is about runs that give way to newer ones, and "
            f"on_conflict={on_conflict} lets none; {undone}.",
            remedy="Give on_conflict=newest_run as well, or leave on_superseded out.",
        )


def partition_names(name: str, given: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the partitions in an argument without repetition; ``None``: not given.

    :param name: the argument's name, for the error.
    :raises InvalidInputError: a text instead of a list, or items that are not texts.
    """
    names = _listed(name, given, "partition paths", "day=2013-01-01")
    return None if names is None else tuple(dict.fromkeys(names))


def job_ids(name: str, given: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of jobs in an argument.

    :param name: the argument's name, for the error.
    :raises InvalidInputError: a text instead of a list, or items that are not texts.
    """
    example = "zr1-01KCF3GZT0000000000000000Z"
    return _listed(name, given, "job ids", example) or ()


def column_names(name: str, given: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the columns in an argument; ``None``: not given.

    :param name: the argument's name, for the error.
    :raises InvalidInputError: a text instead of a list, which would name a column by each of its
        letters; or items that are not texts.
    """
    return _listed(name, given, "columns", "day")


def _listed(
    name: str, given: Iterable[str] | None, kind: str, example: str
) -> tuple[str, ...] | None:
    """Return the texts of an argument that is a list of texts.

    :param kind: the kind of things that they name, for the error.
    :param example: a text for the error's remedy, if the argument has none.
    """
    if given is None:
        return None
    names = texts_in(given)
    if names is None:
        one = given if isinstance(given, str) and given else example
        raise InvalidInputError(
            f"{name}={given!r} is not a list of {kind}; nothing was sent.",
            remedy=f"Give a list of texts: {name}={[one]!r}.",
        )
    return names


def texts_in(given: object) -> tuple[str, ...] | None:
    """Return the texts in a list, an array, a column of a frame or an iterator.

    ``None``: it is a single text, or has items that are not texts.
    """
    to_list = getattr(given, "to_pylist", None)  # Of Arrow.
    listed = given if to_list is None else to_list()
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        return None
    names = tuple(listed)
    texts = tuple(name for name in names if isinstance(name, str))
    return texts if len(texts) == len(names) else None
