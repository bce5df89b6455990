"""The options of ``format("zero_rename")``: one table for writing and one for reading.

:mod:`.option_table` reads them.
"""

# ruff: noqa: RUF009 - option() is dataclasses.field() with metadata that this module needs
from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

from ..committer.errors import InvalidInputError, first_few, without_secrets
from ..committer.format import text_values as texts
from ..committer.format.handoff import Handoff
from ..committer.format.job_spec import (
    Content,
    Coordination,
    Distribute,
    FileOptions,
    Mode,
    OnConflict,
    OnRepeat,
    OnSuperseded,
    Owner,
    SchemaMode,
    SuccessMarkers,
)
from ..committer.format.layout import TableRoot
from ..committer.format.read_base import ReadBase
from ..committer.format.run_rank import RunRanks
from ..committer.store.encryption import Encryption
from ..committer.store.fast_root import FastRoot
from . import option_table as values
from .option_table import camel, known_names, option, plain, read_given
from .submitters import argument, instruction

_FILES = FileOptions()


@dataclass(frozen=True)
class WriterOptions:
    """Options of ``df.write.format("zero_rename")``."""

    USE: ClassVar[str] = "writing"

    path: str | None = option(
        values.text, "The table's root, `s3://bucket/prefix`: the argument of `save()`."
    )
    partition_by: tuple[str, ...] | None = option(
        texts.NAMES.decode,
        'Partition columns, outermost first, separated by commas, or as a JSON list (`["a,b"]`); '
        "if left out, the table's own; for a new table, those of its existing directories. "
        "(Spark refuses `.partitionBy()` for Python data sources.)",
    )
    fail_if_exists: bool = option(
        values.flag,
        "With mode append: fail if a partition that receives rows already holds files. (Spark "
        "refuses mode `error` for Python data sources.)",
        False,
    )
    expected_mode: Mode | None = option(
        texts.mode,
        "The mode that the submitter of the application asks for: `append`, `replace` or "
        "`fail-if-exists` (which then holds without `failIfExists`). A write whose `.mode()` "
        "contradicts it is refused.",
        None,
        "mode",
    )
    replace_partitions: tuple[str, ...] | None = option(
        partial(values.named, texts.PATHS),
        "With mode overwrite: the partitions to replace, `day=2013-01-01;day=2013-01-02`, or as a "
        "JSON list. They are emptied even if no row arrives. Rows for other partitions are "
        "refused.",
        None,
        "partitions",
        f" and `{Handoff.variable('mode')}` is `replace`",
    )
    replace_where: str | None = option(
        values.text,
        "As `replacePartitions`, by a condition in Spark's SQL over partition columns: "
        "`day >= '2013-01-01' and day < '2013-02-01'` replaces every partition of the table that "
        "meets it, also one that another job adds meanwhile. Rows for other partitions are "
        "refused, and so is a condition that leaves it uncertain which partitions meet it.",
    )
    replace_table: bool = option(
        values.flag,
        "With mode overwrite: empty every partition of the table.",
        False,
        "replace_table",
    )
    only_partitions: tuple[str, ...] | None = option(
        partial(values.named, texts.PATHS),
        "The only partitions that may receive rows, `day=2013-01-01;day=2013-01-02`, in either "
        "mode: rows for others are refused before anything is visible.",
        None,
        "partitions",
        f" and `{Handoff.variable('mode')}` is another or absent",
    )
    on_conflict: OnConflict = option(
        partial(texts.choice, OnConflict),
        "What to do when another job changed a partition meanwhile: `fail`; `last_wins`; or "
        "`newest_run`, which also keeps rows that a newer run has loaded at any earlier time.",
        OnConflict.FAIL,
        "on_conflict",
    )
    on_superseded: OnSuperseded = option(
        partial(texts.choice, OnSuperseded),
        "With `onConflict` `newest_run`, what to do with partitions that a newer run has loaded: "
        "`fail`, or `skip`, which leaves them out and writes the others.",
        OnSuperseded.FAIL,
        "on_superseded",
    )
    run_rank: RunRanks | None = option(
        RunRanks.parse,
        "How new the run is, for `newest_run`: a number, or a date or time (UTC if it has no "
        "zone). If left out, a job is as new as the time at which it opened.",
        None,
        "run_rank",
    )
    base: ReadBase | None = option(
        values.read_base,
        "With `onConflict` `fail`: the state of the table that the rows were computed from, as "
        "`Table(…).snapshot().base.encode()`; or `now`: the state when the job opens, after all "
        "stages but the write's last. If left out, the base of an overwrite is what this "
        "application has read of the table.",
    )
    success_markers: SuccessMarkers = option(
        partial(texts.choice, SuccessMarkers),
        "Where `_SUCCESS` markers are written: `partition_and_table`, `table` or `none`. A Delta "
        "table has none unless you give `table`.",
        SuccessMarkers.PARTITION_AND_TABLE,
        "success_markers",
    )
    idempotency_key: str | None = option(
        values.text,
        "A key that makes this write happen once: a second job with the same key does what "
        "`onRepeat` says. Two writes of one script into one table need two keys.",
        None,
        "idempotency_key",
    )
    on_repeat: OnRepeat = option(
        partial(texts.choice, OnRepeat),
        "What to do if a job with this `idempotencyKey` has committed before: `skip`; "
        "`replace_own`, which replaces the rows of that job, and of the jobs that it replaced in "
        "this way; or `append`.",
        OnRepeat.SKIP,
        "on_repeat",
    )
    publish: bool = option(
        values.flag,
        "`false`, in a Delta table by `save()`: the rows are written, and are not visible until "
        "the job is published, by its id.",
        True,
        "publish",
    )
    schema_mode: SchemaMode = option(
        partial(texts.choice, SchemaMode),
        "What to do if the frame has other columns than the table. `keep`: the write is refused. "
        "`merge` (`mergeSchema` is `true`): columns that only the frame has, and wider types, "
        "become the table's; columns that it lacks are null. `overwrite` (`overwriteSchema` is "
        "`true`), with `replaceTable`: the frame's columns replace the table's.",
        SchemaMode.KEEP,
        also={
            "mergeSchema": lambda text: SchemaMode.MERGE if values.flag(text) else SchemaMode.KEEP,
            "overwriteSchema": lambda text: (
                SchemaMode.OVERWRITE if values.flag(text) else SchemaMode.KEEP
            ),
        },
    )
    compression: str = option(
        values.text,
        "Parquet codec: `zstd`, `snappy`, `gzip`, `lz4`, `brotli` or `none` (`uncompressed`).",
        _FILES.compression,
    )
    rows_per_file: int | None = option(
        values.count,
        "Begin a new file after so many rows. If absent, `save()`, `merge()` and `update()` take "
        "the session's `spark.sql.files.maxRecordsPerFile`.",
        also={"maxRecordsPerFile": values.count},
    )
    bytes_per_file: int | None = option(
        texts.size,
        "Begin a new file after about so many bytes, such as `256m`.",
        _FILES.bytes_per_file,
    )
    row_group_rows: int = option(values.count, "Rows per row group.", _FILES.row_group_rows)
    max_open_partitions: int = option(
        values.count,
        "How many files a task has open at once; rows of further partitions wait on the local "
        "disk.",
        _FILES.max_open_partitions,
    )
    part_bytes: int = option(
        texts.size, "Size of the first parts of an upload, at least `5m`.", _FILES.part_bytes
    )
    distribute: Distribute | None = option(
        partial(texts.choice, Distribute),
        "`partition`: first bring the rows of each partition together, by a shuffle, so that it "
        "gets as few files as `bytesPerFile` allows, not one from each task. Only for `save()` "
        "and `stream()`, and not for a sorted frame. `none`, the default there: not. A merge, an "
        "update and a deletion always do.",
        None,
        "distribute",
    )
    storage_class: str | None = option(
        values.text, "Storage class of the objects, such as `STANDARD_IA`."
    )
    encryption: str | None = option(
        values.text,
        "Encryption of files and records by the store: `SSE-S3`, `SSE-KMS` or `DSSE-KMS`. The "
        "table keeps it. If left out: the table's own, else `defaultEncryption`, else the "
        "bucket's.",
    )
    encryption_key: str | None = option(
        values.text, "With KMS: the key, by its id, ARN or alias. If left out: the account's own."
    )
    default_encryption: Encryption | None = option(
        texts.encryption,
        "The encryption of a table whose record names none, if `encryption` is left out: "
        "`SSE-S3`, or `SSE-KMS`, a blank and the key.",
        None,
        "encryption",
    )
    tags: Mapping[str, str] | None = option(values.pairs, "Object tags, `a=b,c=d`.")
    metadata: Mapping[str, str] | None = option(
        values.pairs, "User metadata of the objects, `a=b,c=d`."
    )
    content: Content = option(
        partial(texts.choice, Content),
        "How a recompute with an identical result is recognized: by equal `bytes`, or by equal "
        "`rows`, in any order and any files.",
        _FILES.content,
    )
    max_duration: float = option(
        values.span,
        "Seconds (or `12h`) after which a job that sends no heartbeat counts as dead. "
        "`zero_rename.spark.register(spark)` sends heartbeats.",
        24 * 3600.0,
    )
    freeze_workers: bool = option(
        values.flag,
        "Save Python workers work that Spark repeats around each task: keep the objects that a "
        "worker holds after its first task out of the garbage collection after each task "
        "(`gc.freeze()`), unless other code has frozen objects; read unchanged zip archives on "
        "its path only once (up to Python 3.12).",
        True,
    )
    coordination: Coordination = option(
        partial(texts.choice, Coordination),
        "Of a new table: `store`, or `none` if the store lacks conditional writes. Later jobs into "
        "a table of `none` have to give `none`, too.",
        Coordination.STORE,
    )
    data_root: FastRoot | None = option(
        texts.fast_root,
        "Of a new Delta table: where files of its jobs lie first, "
        "`s3://bucket/prefix?endpoint=https://host:port` and perhaps a profile. Before a "
        "checkpoint, Spark is the only other engine that reads them.",
        None,
        "data_root",
    )
    code_version: str | None = option(
        texts.code_version,
        "Version of the code that computes the rows: a number, a tag or a commit's hash. "
        "`zero-rename lineage stale --code-version` lists partitions that another version made.",
        None,
        "code_version",
    )
    dag: str | None = option(values.text, "Owner of the job: the DAG's id.", None, "dag")
    run: str | None = option(values.text, "… the DAG run's id.", None, "run")
    task: str | None = option(values.text, "… the task's id.", None, "task")
    map_index: int | None = option(texts.whole, "… the map index.", None, "map_index")
    try_number: int | None = option(
        texts.whole,
        "… the number of the attempt. Not part of `idempotencyKey`.",
        None,
        "try_number",
    )
    series: str | None = option(
        values.text,
        "… a text that all attempts of the task between two clears share.",
        None,
        "series",
    )

    def mode(self, overwrite: bool) -> Mode:
        """Return the mode of a write by Spark's save mode and the options.

        :param overwrite: Spark's save mode is overwrite, not append.
        :raises InvalidInputError: they contradict each other.
        """
        replacing = [
            name
            for name, value in (
                ("replacePartitions", self.replace_partitions),
                ("replaceWhere", self.replace_where),
                ("replaceTable", self.replace_table),
            )
            if value is not None and value is not False
        ]
        if overwrite and self.fail_if_exists:
            raise InvalidInputError(
                "failIfExists contradicts mode overwrite; nothing was written.",
                remedy='Use .mode("append") with failIfExists, or leave it out.',
            )
        if replacing and not overwrite:
            raise InvalidInputError(
                f"{' and '.join(replacing)} (as an option or from the environment) needs mode "
                "overwrite, and the mode is append; nothing was written.",
                remedy='Use .mode("overwrite").',
            )
        if len(replacing) > 1:
            raise InvalidInputError(
                f"{' and '.join(replacing)} contradict each other; nothing was written.",
                remedy="Give one of them.",
            )
        exclusive = self.fail_if_exists or self.expected_mode is Mode.FAIL_IF_EXISTS
        mode = Mode.FAIL_IF_EXISTS if exclusive else Mode.APPEND
        mode = Mode.REPLACE if overwrite else mode
        self._check_expected(mode)
        return mode

    def _check_expected(self, mode: Mode) -> None:
        expected = self.expected_mode
        if expected in (None, mode):
            return
        said = Handoff(dag=self.dag, idempotency_key=self.idempotency_key)
        raise InvalidInputError(
            f"The write's mode is {'overwrite' if mode is Mode.REPLACE else mode}, and {expected} "
            f"is asked for ({instruction(said, 'mode')}); nothing was written.",
            remedy=f"Change the application's .mode(), or leave out {argument(said, 'mode')}.",
        )

    def owner(self, application: str | None) -> Owner:
        """Return the owner of the job.

        :param application: a unique name of this Spark application.
        """
        return Owner(
            dag_id=self.dag,
            run_id=self.run,
            task_id=self.task,
            map_index=self.map_index,
            try_number=self.try_number,
            application=application,
            host=socket.gethostname(),
            pid=os.getpid(),
            series=self.series,
        )

    def files(self) -> FileOptions:
        """Return the options of data files."""
        given: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(FileOptions)}
        given |= {"tags": self.tags or {}, "metadata": self.metadata or {}}
        return FileOptions(**given)


@dataclass(frozen=True)
class ReaderOptions:
    """Options of ``spark.read.format("zero_rename")``."""

    USE: ClassVar[str] = "reading"

    path: str | None = option(
        values.text, "The table's root, `s3://bucket/prefix`: the argument of `load()`."
    )
    columns: tuple[str, ...] | None = option(
        partial(values.named, texts.NAMES),
        "The columns to read, separated by commas, or as a JSON list. Spark does not say to Python "
        "data sources which columns a query needs, so all are read if this is left out.",
    )
    partitions: tuple[str, ...] | None = option(
        partial(values.named, texts.PATHS),
        "The partitions to read, `day=2013-01-01;day=2013-01-02`.",
    )
    where: str | None = option(
        values.text,
        "Read only rows that meet this condition in Spark's SQL: `day >= '2013-01-01' and delay > "
        "60`. Partitions, files and row groups that cannot hold such rows are not read. A "
        "condition is refused if it is uncertain which rows Spark would select; `load()` takes "
        "any condition. A `.where()` after "
        '`format("zero_rename")` filters rows, but every file is read.',
    )
    target_partition_bytes: int = option(
        texts.size,
        "One Spark task reads files of up to about so many bytes together.",
        128 * 1024 * 1024,
    )


def read_writer_options(
    given: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> WriterOptions:
    """Parse the options of a write, completed by those of the application's submitter.

    :param given: the options, all as texts.
    :raises InvalidInputError: an unknown option, an invalid value, or a secret.
    """
    return writer_options(given, Handoff.decode(environ))


def writer_options(
    given: Mapping[str, str], handoff: Handoff, named: Mapping[str, Any] = MappingProxyType({})
) -> WriterOptions:
    """Combine the options of a write with those of the application's submitter.

    :param given: options as texts.
    :param handoff: the submitter's, which count for options that are not given.
    :param named: the call's values, by the names of fields.
    :raises InvalidInputError: as :func:`read_writer_options`; or an option contradicts the call.
    """
    texts = read_given(WriterOptions, given, ReaderOptions)
    _check_same_partitions(texts, named)
    read = {**texts, **named}
    if "path" in read:
        handoff = handoff.about(TableRoot.parse(read["path"]))
    handed = _handed(handoff)
    asked = read.get("expected_mode", handed.get("expected_mode"))
    exclusive = {"fail_if_exists": True} if asked is Mode.FAIL_IF_EXISTS else {}
    _check_same_values(given, texts, {**exclusive, **named})
    if "replace_where" in read:
        handed.pop("replace_partitions", None)
    return WriterOptions(**handed | _limited(read, handoff) | read)


def _check_same_partitions(texts: Mapping[str, Any], named: Mapping[str, Any]) -> None:
    """Refuse an option that names other partitions than the call or its submitter.

    :raises InvalidInputError: the option would be ignored.
    """
    for name in ("replace_partitions", "only_partitions"):
        if name in texts and name in named and {*texts[name]} != {*named[name]}:
            raise InvalidInputError(
                f"The option {camel(name)} names {first_few(texts[name])}, and the write is about "
                f"{first_few(named[name]) if named[name] else 'none'}, as the call or the "
                "submitting task says; nothing was written.",
                remedy="Leave the option out, and name the partitions in the call of save().",
            )


def _check_same_values(
    given: Mapping[str, str], texts: Mapping[str, Any], named: Mapping[str, Any]
) -> None:
    """Refuse an option whose value differs from that of the argument with the same meaning.

    Partitions are compared by :func:`_check_same_partitions`, and the table's path when the call is
    resolved.

    :raises InvalidInputError: the option would be ignored.
    """
    others = {"path", "replace_partitions", "only_partitions"}
    for name, value in named.items():
        if name in others or name not in texts or texts[name] == value:
            continue
        spelt, text = next(it for it in given.items() if plain(it[0]) == plain(name))
        if name == "fail_if_exists":
            said, remedy = f"the mode is {Mode.FAIL_IF_EXISTS}", "mode="
        elif isinstance(value, ReadBase):
            said, remedy = "the call has another base=", "base="
        else:
            shown = [*value] if isinstance(value, tuple) else value
            shown = str(value) if isinstance(value, StrEnum) else shown
            said, remedy = f"the call has {name}={shown!r}", f"{name}="
        raise InvalidInputError(
            f"The option {spelt} is {without_secrets(text)[:200]!r}, and {said}; nothing was "
            "written.",
            remedy=f"Leave the option out, or give {remedy} the same value.",
        )


def _limited(read: Mapping[str, Any], handoff: Handoff) -> dict[str, Any]:
    """Return the limit of a write that names partitions of its own: those of its submitter.

    :raises InvalidInputError: the write may have rows for other partitions.
    """
    task = handoff.partitions
    if task is None:
        return {}
    replaces = read.get("replace_partitions", task if handoff.mode is Mode.REPLACE else None)
    if "replace_where" not in read and replaces is not None and {*replaces} <= {*task}:
        return {}  # Rows for others are refused.
    others = sorted({*read.get("only_partitions", ())} - {*task})
    if others:
        raise InvalidInputError(
            f"The application may write {first_few(others)}, by its option onlyPartitions, and its "
            f"task is about {first_few(task) if task else 'none'}; nothing was written.",
            remedy="Mend the application's onlyPartitions or the task's partition.",
        )
    return {"only_partitions": task}


def names_key(given: Mapping[str, str]) -> bool:
    """Return whether a write has an idempotency key of its own, in any spelling of the option."""
    return is_given(given, "idempotency_key")


def is_given(given: Mapping[str, str], member: str) -> bool:
    """Return whether the option of a field is given, in any spelling."""
    return plain(member) in map(plain, given)


def native_only(given: Mapping[str, str]) -> list[str]:
    """Pick the options of ``format("zero_rename")`` that Spark's Parquet writer does not have.

    They may have any spelling.
    """
    both = map(plain, ("compression", "maxRecordsPerFile"))
    own = known_names(WriterOptions) - {*both}
    return [name for name in given if plain(name) in own]


def read_reader_options(given: Mapping[str, str]) -> ReaderOptions:
    """Parse the options of a read.

    :raises InvalidInputError: an unknown option, an invalid value, or a secret.
    """
    return ReaderOptions(**read_given(ReaderOptions, given, WriterOptions))


def _handed(handoff: Handoff) -> dict[str, Any]:
    """Return the options of a write that its application's submitter gives."""
    handed = {f.name: f.metadata["handed"] for f in fields(WriterOptions) if f.metadata["handed"]}
    # Partitions are emptied only if the submitter that names them also says mode replace.
    del handed["only_partitions" if handoff.mode is Mode.REPLACE else "replace_partitions"]
    said = {name: getattr(handoff, member) for name, member in handed.items()}
    return {name: value for name, value in said.items() if value is not None}
