"""Job specification: mode, conflict and repeat policy, markers, and how files are written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from ..errors import InvalidInputError, first_few
from ..store.encryption import Encryption
from ..store.fast_root import FastRoot
from .code_version import checked_code_version
from .layout import UNPARTITIONED
from .read_base import ReadBase
from .row_changes import ChangeReads, RowChanges
from .run_rank import RunRanks
from .settling import Settling

if TYPE_CHECKING:
    import pyarrow as pa

_C = TypeVar("_C", bound=StrEnum)


class Mode(StrEnum):
    """What happens to files already in a partition that receives rows; others are not touched."""

    #: They stay; the job's are added.
    APPEND = "append"
    #: The job's take their place. Spark's and Airflow's users call it ``overwrite``.
    REPLACE = "replace"
    #: The job is refused with :class:`.DestinationExistsError`.
    FAIL_IF_EXISTS = "fail-if-exists"
    #: Rows are matched by key: no job's mode, but what an application is asked for, whose job then
    #: replaces the partitions that change.
    MERGE = "merge"

    @classmethod
    def parse(cls, word: str) -> Mode:
        """A mode, by any of the names in :data:`MODES`; case does not count.

        :raises InvalidInputError: no such mode.
        """
        found = MODES.get(word.strip().lower().replace("_", "-"))
        if found is None:
            raise InvalidInputError(
                f"mode={word!r} is unknown; nothing was sent.",
                remedy=f"Choose one of {', '.join(MODES)}.",
            )
        return found


#: What users and Spark call the modes.
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
    """What a job does that finds a partition changed since it opened."""

    #: It is aborted with :class:`.CommitConflictError`.
    FAIL = "fail"
    #: It follows the other one: a replace takes the place of its files, too.
    LAST_WINS = "last_wins"
    #: It follows one of an older run, and gives way to one of a newer run, whenever that loaded the
    #: partition: see :mod:`.run_rank`. Of runs of one rank, as *fail*.
    NEWEST_RUN = "newest_run"


class OnSuperseded(StrEnum):
    """What a job does with partitions that a newer run has loaded, under
    :attr:`OnConflict.NEWEST_RUN`."""

    #: It is aborted with :class:`.SupersededRunError`.
    FAIL = "fail"
    #: It leaves these partitions out, and writes the others; where none is left, it is aborted.
    SKIP = "skip"


class SuccessMarkers(StrEnum):
    """Where ``_SUCCESS`` goes."""

    #: Into each partition that the job changes, and to the table's root.
    PARTITION_AND_TABLE = "partition_and_table"
    #: To the table's root.
    TABLE = "table"
    #: Nowhere.
    NONE = "none"


class Distribute(StrEnum):
    """Which of a Spark application's tasks write a partition's rows."""

    #: As few as its bytes take: Spark brings its rows together first, by a shuffle.
    PARTITION = "partition"
    #: Those that have some of them.
    NONE = "none"


class OnRepeat(StrEnum):
    """What a job does whose idempotency key an earlier job has already moved."""

    #: It writes nothing, and reports what that job committed.
    SKIP = "skip"
    #: Its files take the place of that job's, of those that it took the place of, and of no others.
    REPLACE_OWN = "replace_own"
    #: Its files are added once more.
    APPEND = "append"


class SchemaMode(StrEnum):
    """What becomes of a table's columns where a job brings others."""

    #: They stay; other columns are refused.
    KEEP = "keep"
    #: Columns that only the job has, and wider types, become the table's; columns that the job
    #: lacks are null in its files.
    MERGE = "merge"
    #: The job's take their place, whatever they are. Only in a replace of the whole table.
    OVERWRITE = "overwrite"


class TableLayout(StrEnum):
    """How a table is kept: what a job's commit writes, and who can read it."""

    #: In the partitions' directories, which every engine lists, with this package's own records.
    DIRECTORY = "directory"
    #: As a Delta table, whose log every engine of Delta Lake reads.
    DELTA = "delta"


class Coordination(StrEnum):
    """How a table's writers notice each other."""

    #: By conditional writes, which the store has to carry out in one step.
    STORE = "store"
    #: Not at all, for stores without them: one writer at a time.
    NONE = "none"


def choice(name: str, kind: type[_C], given: str) -> _C:
    """The member of an enumeration that a word names.

    :param name: of the parameter, for the error.
    :raises InvalidInputError: it names none.
    """
    try:
        return kind(given)
    except ValueError as error:
        raise InvalidInputError(
            f"{name} is {given!r}; nothing was sent.", remedy=f"Choose one of {', '.join(kind)}."
        ) from error


@dataclass(frozen=True)
class Owner:
    """Who runs a job. Written to its open record and its markers; never credentials.

    :param dag_id: Airflow's DAG; so too ``run_id``, ``task_id``, ``map_index``, ``try_number``.
    :param run_id: the run of that DAG.
    :param task_id: its task.
    :param map_index: of a mapped task, else ``None`` or -1.
    :param try_number: from 1 on.
    :param application: outside Airflow, what the program calls itself.
    :param host: name of the machine that opened the job.
    :param pid: id of the process there.
    :param series: tells the tries of a run since it was made or cleared from those before: words,
        of which the first one changes where the run is made anew or runs again after its end, and
        the last one where the task is cleared.
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
        """What is the same in all tries of a task from one clear of it to the next; ``None``: it is
        not known."""
        return self.series and self.series.rpartition(" ")[2]

    @property
    def run_began(self) -> str | None:
        """When a run of Airflow began: another time once it was made anew; ``None``: it is not
        known."""
        return self.series and self.series.partition(" ")[0]


NOBODY = Owner()
#: Seconds after which a job that gives no heartbeat may be fenced.
MAX_DURATION = 24 * 3600.0


#: Spark's word for ``none``.
_UNCOMPRESSED = "uncompressed"


class Content(StrEnum):
    """What tells the rows of files from others."""

    #: The bytes: the same rows in another order, as after a shuffle, are others.
    BYTES = "bytes"
    #: The rows, in any order and files: 0.1 s of CPU for a million of five columns.
    ROWS = "rows"


@dataclass(frozen=True)
class FileOptions:
    """How data files are written.

    :param compression: Parquet codec: zstd, snappy, gzip, lz4, brotli or none (uncompressed).
    :param rows_per_file: a new file after so many rows; ``None`` is no limit.
    :param bytes_per_file: a new file after about so many bytes.
    :param row_group_rows: rows per row group.
    :param max_open_partitions: at most so many open files per task; rows of further
        partitions wait in a local spill file.
    :param part_bytes: size of an upload's first parts, at least 5 MiB.
    :param storage_class: the objects' storage class; ``None`` leaves it to the bucket.
    :param encryption: by the store: SSE-S3, SSE-KMS or DSSE-KMS, of the files and of all records.
        The table keeps it for the jobs and the maintenance to come; ``None`` is the table's, or
        leaves it to the bucket.
    :param encryption_key: the KMS key, by its id, ARN or alias; ``None`` is the account's own.
    :param tags: object tags.
    :param metadata: user metadata, besides the job id that every object carries.
    :param content: what an identical recompute is known by.
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
        """The encryption that the job names; ``None``: it names none.

        :raises InvalidInputError: an unknown one, or a key that cannot be one.
        """
        return Encryption.named(self.encryption, self.encryption_key)

    @property
    def encrypted_if_right(self) -> Encryption | None:
        """The encryption that the job names; ``None``, too, where it cannot be right, which the
        job's own checks say."""
        try:
            return self.encrypted
        except InvalidInputError:
            return None

    def encrypted_by(self, encryption: Encryption | None) -> FileOptions:
        """These options with a table's encryption, unless they name one."""
        if encryption is None or self.encryption is not None:
            return self
        return replace(self, encryption=encryption.algorithm, encryption_key=encryption.key)

    def __post_init__(self) -> None:
        """Take words for choices, and Spark's word for a codec of ours."""
        object.__setattr__(self, "content", choice("content", Content, self.content))
        if self.compression == _UNCOMPRESSED:
            object.__setattr__(self, "compression", "none")


@dataclass(frozen=True)
class JobSpec:
    """One write into one table.

    :param schema: all columns, partition columns included.
    :param mode: what happens to files that are in a partition already.
    :param partition_by: the partition columns, outermost first; ``None`` takes the table's own,
        a new table's from the directories that are there (none: it is unpartitioned).
    :param replace_partitions: Hive-escaped partition paths that are emptied and marked even if
        no row arrives; rows for any other partition are refused. An empty list names none: it
        empties nothing, and all rows are refused. ``None``: any. Only with mode replace.
    :param replace_table: empty every partition. Only with mode replace.
    :param replace_where: empty each partition of the table that this contains, also one that comes
        while the job claims; rows for any other are refused. Only with mode replace.
    :param only_partitions: Hive-escaped partition paths; rows for any other are refused, in
        whatever mode; of an empty list all rows. ``None`` allows any.
    :param base: what the job has read of the table; ``None``: nothing, so that what is there
        when it opens counts.
    :param serializable: partitions of ``base`` that the job does not write are to be as it read
        them, too, and no others are to have come, when it holds its claims.
    :param adopt_partitions: Hive-escaped partition paths whose files from before the table the job
        takes over, rows or none. Only with mode append.
    :param keep_replaced: what a replace takes the place of stays in the store, where readers
        through the heads do not see it and those that list do, until the next replace removes it.
    :param merges: by partition, the jobs whose rows this one writes again, among others': a later
        try of theirs that replaces its own is refused there.
    :param sorted_by: columns of the files that the job's rows come sorted by, in one task: the
        files say so, and nobody looks whether it is true.
    :param row_changes: by partition, what the job does to the rows that it was computed from. Such
        a job has rows of its own, besides those that it writes again.
    :param change_reads: of such a job, what it has read.
    :param settles: by partition, the conflict of runs that the job settles: its rank is not
        compared there, and the partition must be as ``base`` has it, under any ``on_conflict``. A
        job that neither replaces nor writes rows there leaves on record who stands.
    :param lacked: columns that the job's files may lack, of a table that it makes: of another table
        to which these came later.
    :param schema_mode: what becomes of the table's columns where the job brings others.
    :param any_case: columns that differ from the table's by case alone are those, as Spark has it.
    :param spark_types: columns in the types in which Spark sees the table's are of the table's own
        types: the writer casts their values, and refuses one that does not fit.
    :param on_conflict: what to do where another job changed a partition since this one opened.
    :param on_superseded: what to do, under ``on_conflict=newest_run``, where a newer run loaded it.
    :param run_rank: how new the job's run is: a number, a date or a time, or several by partition
        (:class:`.run_rank.RunRanks`); ``None``: as new as the job.
    :param success_markers: where ``_SUCCESS`` goes.
    :param coordination: of a new table; a job on a table of the other kind is refused, so that
        each job into a table of *none* names it.
    :param idempotency_key: the run's key (DAG, run, task, map index; not the try); ``None`` for
        none.
    :param on_repeat: what to do where an earlier job under that key has committed.
    :param publish: ``False``: the job's rows are written, and nobody sees them before somebody
        publishes the job, by its id. Only in a Delta table.
    :param data_root: of a new Delta table: where its jobs' files lie first, as
        ``s3://bucket/prefix``; ``None``: in the table. A job that names another one than the
        table's is refused.
    :param code_version: of the program that computed the rows, as it calls it; ``None``: not said.
    :param max_duration: seconds after which a job without a heartbeat may be fenced.
    :param owner: who runs the job.
    :param files: how its files are written.
    :param default_encryption: by the store, of a table whose record names none, where ``files``
        names none either; ``None``: the driver's.
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
        """Take words for choices, such as ``"overwrite"`` for :attr:`Mode.REPLACE`.

        :raises InvalidInputError: a word that is none of the choices, partitions to replace that
            may not be written or without mode replace, or columns to overwrite where files stay.
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
        """:raises InvalidInputError: it says of newer runs what the job cannot keep to."""
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
        """The partitions among all of a table that the job empties whatever rows it has."""
        if self.replace_where is not None:
            return {name for name in every if name in self.replace_where}
        return set(every) if self.replace_table else set()

    def sure_partitions(self, every: Iterable[str]) -> set[str]:
        """The partitions among all of a table that the job changes whatever rows it has, if it has
        any: an unpartitioned table's is the only one."""
        named = {UNPARTITIONED, *(self.replace_partitions or ())}
        return self.emptied(every) | named.intersection(every)

    @property
    def fast(self) -> FastRoot | None:
        """The data root that the job names."""
        return None if self.data_root is None else FastRoot.parse(self.data_root)

    @property
    def empties_unnamed(self) -> bool:
        """Whether that takes a look at which partitions there are."""
        return self.replace_table or self.replace_where is not None

    @property
    def named_partitions(self) -> tuple[str, ...]:
        """The only partitions that it may write, as far as it names them; none: any."""
        return self.replace_partitions or self.only_partitions or ()

    @property
    def allowed_partitions(self) -> Collection[str] | None:
        """The partitions rows may go to; ``None`` for any."""
        if self.replace_where is not None:
            return self.replace_where
        named = self.replace_partitions
        named = self.only_partitions if named is None else named
        return None if named is None else frozenset(named)


def check_superseded(on_conflict: OnConflict, on_superseded: OnSuperseded, undone: str) -> None:
    """Refuse to skip for newer runs where no run gives way to them.

    :param undone: what has not happened, for the error: ``nothing was sent``.
    :raises InvalidInputError: it is so.
    """
    if on_conflict is not OnConflict.NEWEST_RUN and on_superseded is OnSuperseded.SKIP:
        raise InvalidInputError(
            f"on_superseded={on_superseded} is about runs that give way to newer ones, and "
            f"on_conflict={on_conflict} lets none; {undone}.",
            remedy="Give on_conflict=newest_run as well, or leave on_superseded out.",
        )


def partition_names(name: str, given: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the partitions in an argument without repetition; ``None`` where none is given.

    :param name: the argument's, for the error.
    :raises InvalidInputError: a text in the place of a list, or something else than texts.
    """
    names = _listed(name, given, "partition paths", "day=2013-01-01")
    return None if names is None else tuple(dict.fromkeys(names))


def column_names(name: str, given: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the columns in an argument; ``None`` where none is given.

    :param name: the argument's, for the error.
    :raises InvalidInputError: a text in the place of a list, which would name a column by each of
        its letters; or something else than texts.
    """
    return _listed(name, given, "columns", "day")


def _listed(
    name: str, given: Sequence[str] | None, kind: str, example: str
) -> tuple[str, ...] | None:
    """Return the texts of an argument that is a list of them.

    :param kind: what they name, for the error.
    :param example: one of them, where the argument shows none.
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
    """Return the texts in a list, an array, a column of a frame or what can be gone through once;
    ``None``: it is one text, or something else than texts."""
    to_list = getattr(given, "to_pylist", None)  # Of Arrow.
    listed = given if to_list is None else to_list()
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        return None
    names = tuple(listed)
    texts = tuple(name for name in names if isinstance(name, str))
    return texts if len(texts) == len(names) else None
