"""The options of ``format("zero_rename")``: one table each for writing and reading.

Spark lower-cases option names on their way to a Python data source, so ``partitionBy``,
``partition_by`` and ``partitionby`` are one option. Unknown options are refused, not ignored: a
misspelt ``replacePartitions`` would lose what it was meant to protect.

Options show up in query plans and in Spark's UI. None of them is a secret, and what looks like
one is refused without repeating it.

``python -m zero_rename.spark.options`` prints both tables as Markdown.
"""

# ruff: noqa: RUF009 - _option() is dataclasses.field() with what this module needs besides
from __future__ import annotations

import difflib
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import partial
from typing import Any, TypeVar

from ..committer.errors import InvalidInputError
from ..committer.job_spec import (
    Coordination,
    DuringApply,
    FileOptions,
    Mode,
    OnConflict,
    OnRepeat,
    Owner,
    SuccessMarkers,
)
from ..committer.layout import TableRoot
from . import option_values as values

#: Where set, the environment's options hold for writes into this table only.
TABLE_VARIABLE = "ZERO_RENAME_TABLE"
_SECRET = re.compile(r"key|secret|token|passw|credential|signature", re.IGNORECASE)
_FILES = FileOptions()
O = TypeVar("O", "WriterOptions", "ReaderOptions")  # noqa: E741 - a type variable


def _option(
    parse: Callable[[str], Any], doc: str, default: Any = None, variable: str | None = None
) -> Any:
    """An option.

    :param parse: from its text; raises ``ValueError`` with what it should have been.
    :param variable: an environment variable of the driver that counts where the option is absent.
    """
    return field(default=default, metadata={"parse": parse, "doc": doc, "variable": variable})


@dataclass(frozen=True)
class WriterOptions:
    """Options of ``df.write.format("zero_rename")``."""

    path: str | None = _option(
        values.text, "The table's root, `s3://bucket/prefix`: the argument of `save()`."
    )
    partition_by: tuple[str, ...] | None = _option(
        values.names,
        "Partition columns, outermost first, separated by commas; the table's own where left out. "
        "(Spark refuses `.partitionBy()` for Python data sources.)",
    )
    fail_if_exists: bool = _option(
        values.flag,
        "With mode append: fail if a partition that receives rows already holds files. (Spark "
        "refuses mode `error` for Python data sources.)",
        False,
    )
    expected_mode: Mode | None = _option(
        partial(values.choice, Mode),
        "The mode that whoever submits the application asks for: `append`, `replace` or "
        "`fail-if-exists` (which then holds without `failIfExists`). A write whose `.mode()` "
        "contradicts it is refused.",
        None,
        "ZERO_RENAME_MODE",
    )
    replace_partitions: tuple[str, ...] = _option(
        values.paths,
        "With mode overwrite: the partitions to replace, `day=2013-01-01;day=2013-01-02`. They "
        "are emptied even if no row arrives, and rows for any other are refused.",
        (),
        "ZERO_RENAME_REPLACE_PARTITIONS",
    )
    replace_table: bool = _option(
        values.flag, "With mode overwrite: empty every partition of the table.", False
    )
    only_partitions: tuple[str, ...] = _option(
        values.paths,
        "The only partitions that rows may be for, `day=2013-01-01;day=2013-01-02`, in either "
        "mode: others are refused before anything is visible.",
        (),
        "ZERO_RENAME_ONLY_PARTITIONS",
    )
    on_conflict: OnConflict = _option(
        partial(values.choice, OnConflict),
        "What to do when another job changed a partition meanwhile: `fail`, or `last_wins`.",
        OnConflict.FAIL,
        "ZERO_RENAME_ON_CONFLICT",
    )
    during_apply: DuringApply = _option(
        partial(values.choice, DuringApply),
        "What readers that only list may see while a replace is applied: `no_gap` (old and new "
        "files together) or `no_duplicates` (neither).",
        DuringApply.NO_GAP,
    )
    success_markers: SuccessMarkers = _option(
        partial(values.choice, SuccessMarkers),
        "Where `_SUCCESS` goes: `partition_and_table`, `table` or `none`.",
        SuccessMarkers.PARTITION_AND_TABLE,
        "ZERO_RENAME_SUCCESS_MARKERS",
    )
    once: str | None = _option(
        values.text,
        "A key that makes this write happen once: a second job with it does what `onRepeat` "
        "says. Two writes of one script into one table need two keys.",
        None,
        "ZERO_RENAME_ONCE",
    )
    on_repeat: OnRepeat = _option(
        partial(values.choice, OnRepeat),
        "When a job with this `once` key has committed before: `skip`, `replace_own` (its files) "
        "or `append`.",
        OnRepeat.SKIP,
        "ZERO_RENAME_ON_REPEAT",
    )
    compression: str = _option(
        values.text,
        "Parquet codec: `zstd`, `snappy`, `gzip`, `lz4`, `brotli` or `none`.",
        _FILES.compression,
    )
    rows_per_file: int | None = _option(values.count, "A new file after so many rows.")
    bytes_per_file: int | None = _option(
        values.size, "A new file after about so many bytes, such as `256m`.", _FILES.bytes_per_file
    )
    row_group_rows: int = _option(values.count, "Rows per row group.", _FILES.row_group_rows)
    max_open_partitions: int = _option(
        values.count,
        "Files a task has open at once; rows of further partitions wait on the local disk.",
        _FILES.max_open_partitions,
    )
    part_bytes: int = _option(
        values.size, "Size of an upload's first parts, at least `5m`.", _FILES.part_bytes
    )
    storage_class: str | None = _option(
        values.text, "The objects' storage class, such as `STANDARD_IA`."
    )
    tags: Mapping[str, str] | None = _option(values.pairs, "Object tags, `a=b,c=d`.")
    metadata: Mapping[str, str] | None = _option(
        values.pairs, "User metadata of the objects, `a=b,c=d`."
    )
    max_duration: float = _option(
        values.seconds,
        "Seconds (or `12h`) after which a job that gives no sign of life counts as dead. "
        "`zero_rename.spark.register(spark)` gives signs of life.",
        24 * 3600.0,
    )
    coordination: Coordination = _option(
        partial(values.choice, Coordination),
        "Of a new table: `store`, or `none` where the store lacks conditional writes.",
        Coordination.STORE,
    )
    dag: str | None = _option(
        values.text, "Who runs the job: the DAG's id.", None, "ZERO_RENAME_DAG"
    )
    run: str | None = _option(values.text, "… the DAG run's id.", None, "ZERO_RENAME_RUN")
    task: str | None = _option(values.text, "… the task's id.", None, "ZERO_RENAME_TASK")
    map_index: int | None = _option(values.whole, "… the map index.", None, "ZERO_RENAME_MAP_INDEX")
    try_number: int | None = _option(
        values.whole, "… the try. Not part of `once`.", None, "ZERO_RENAME_TRY_NUMBER"
    )

    def mode(self, overwrite: bool) -> Mode:
        """What Spark's save mode and the options come to.

        :raises InvalidInputError: they contradict each other.
        """
        replacing = [
            name
            for name, value in (
                ("replacePartitions", self.replace_partitions),
                ("replaceTable", self.replace_table),
            )
            if value
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
        if len(replacing) == 2:
            raise InvalidInputError(
                "replacePartitions and replaceTable contradict each other; nothing was written.",
                remedy="Give one of them.",
            )
        self._check_expected(overwrite)
        if overwrite:
            return Mode.REPLACE
        exclusive = self.fail_if_exists or self.expected_mode is Mode.FAIL_IF_EXISTS
        return Mode.FAIL_IF_EXISTS if exclusive else Mode.APPEND

    def _check_expected(self, overwrite: bool) -> None:
        expected = self.expected_mode
        if expected is None or (expected is Mode.REPLACE) is overwrite:
            return
        raise InvalidInputError(
            f"The write's mode is {'overwrite' if overwrite else 'append'}, and {expected} is "
            "asked for (ZERO_RENAME_MODE, which the Airflow operator's mode= sets); nothing was "
            "written.",
            remedy="Change the application's .mode(), or leave the operator's mode= out.",
        )

    def owner(self, application: str | None) -> Owner:
        """Who runs the job. :param application: what tells this Spark application from others."""
        return Owner(
            dag_id=self.dag,
            run_id=self.run,
            task_id=self.task,
            map_index=self.map_index,
            try_number=self.try_number,
            application=application,
            host=socket.gethostname(),
            pid=os.getpid(),
        )

    def files(self) -> FileOptions:
        """How data files are written."""
        given: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(FileOptions)}
        given |= {"tags": self.tags or {}, "metadata": self.metadata or {}}
        return FileOptions(**given)


@dataclass(frozen=True)
class ReaderOptions:
    """Options of ``spark.read.format("zero_rename")``."""

    path: str | None = _option(
        values.text, "The table's root, `s3://bucket/prefix`: the argument of `load()`."
    )
    columns: tuple[str, ...] | None = _option(
        values.names,
        "The columns to read, separated by commas. Spark does not tell Python data sources which "
        "columns a query needs, so all are read where this is left out.",
    )
    partitions: tuple[str, ...] | None = _option(
        values.paths, "The partitions to read, `day=2013-01-01;day=2013-01-02`."
    )
    partition_filter: str | None = _option(
        values.text,
        "Comparisons of partition columns, `day >= 2013-01-01 and day < 2013-02-01`: partitions "
        "that do not fit are not read. A `where()` alone filters rows and prunes nothing.",
    )
    target_partition_bytes: int = _option(
        values.size,
        "Files are read together by one Spark task up to about so many bytes.",
        128 * 1024 * 1024,
    )


def read_writer_options(
    given: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> WriterOptions:
    """Options of a write, completed by the environment.

    :raises InvalidInputError: an unknown option, a value that cannot be right, a secret.
    """
    return _read(WriterOptions, given, environ)


def read_reader_options(given: Mapping[str, str]) -> ReaderOptions:
    """Options of a read.

    :raises InvalidInputError: an unknown option, a value that cannot be right, a secret.
    """
    return _read(ReaderOptions, given, {})


def _read(kind: type[O], given: Mapping[str, str], environ: Mapping[str, str]) -> O:
    known = {_plain(f.name): f for f in fields(kind)}
    texts: dict[str, tuple[Field[Any], str, str]] = {}
    for name, value in given.items():
        found = known.get(_plain(name))
        if found is None:
            raise _unknown(kind, name)
        texts[found.name] = (found, f"The option {camel(found.name)}", value)
    path = texts.get("path")
    for found in fields(kind):
        variable = found.metadata["variable"]
        value = environ.get(variable) if variable else None
        if value and found.name not in texts and _applies(environ, path[2] if path else None):
            texts[found.name] = (found, f"The environment variable {variable}", value)
    return kind(**{name: _parse(*entry) for name, entry in texts.items()})


def _plain(name: str) -> str:
    return re.sub(r"[_\-\s]", "", name).lower()


def camel(name: str) -> str:
    """``partition_by`` as options are documented: ``partitionBy``."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _parse(option: Field[Any], what: str, value: str) -> Any:
    if option.name == "path" and "@" in value.split("://", 1)[-1].split("/", 1)[0]:
        raise _secret("The table root has something before an @, like a user and password")
    try:
        parsed = option.metadata["parse"](value)
    except ValueError as error:
        raise InvalidInputError(
            f"{what} {error}, not {value[:200]!r}; nothing was read or written.",
            remedy=option.metadata["doc"].replace("`", ""),
        ) from error
    if isinstance(parsed, dict) and any(_SECRET.search(name) for name in parsed):
        raise _secret(f"{what} has an entry that looks like a credential")
    return parsed


def _unknown(kind: type[Any], name: str) -> InvalidInputError:
    if _SECRET.search(name):
        return _secret(f"The option {name!r} looks like a credential")
    names = {_plain(f.name): camel(f.name) for f in fields(kind)}
    near = difflib.get_close_matches(_plain(name), names, n=1, cutoff=0.6)
    if near:
        remedy = f"Is {names[near[0]]} meant?"
    elif "endpoint" in name.lower() or "region" in name.lower():
        remedy = "Set AWS_ENDPOINT_URL and AWS_REGION for the driver and the executors."
    else:
        remedy = f"There are {', '.join(names.values())}."
    other = WriterOptions if kind is ReaderOptions else ReaderOptions
    if _plain(name) in (_plain(f.name) for f in fields(other)):
        remedy = f"It is an option for {'reading' if other is ReaderOptions else 'writing'} only."
    return InvalidInputError(
        f"{name!r} is no option of zero_rename; nothing was read or written.", remedy=remedy
    )


def _secret(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"{what}; options show up in query plans, logs and Spark's UI. Nothing was read or "
        "written.",
        remedy="Credentials come from boto3's own chain on driver and executors: environment "
        "variables (AWS_ACCESS_KEY_ID …), AWS_PROFILE, or the role of the instance or container.",
    )


def _applies(environ: Mapping[str, str], path: str | None) -> bool:
    """Whether the environment's options speak of the table being written."""
    table = environ.get(TABLE_VARIABLE)
    if not table or path is None:
        return True
    return TableRoot.parse(table) == TableRoot.parse(path)


def markdown(kind: type[Any]) -> str:
    """The options of a class as a Markdown table, for the README."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in fields(kind):
        variable = option.metadata["variable"]
        doc = option.metadata["doc"] + (f" From `{variable}` where absent." if variable else "")
        lines.append(f"| `{camel(option.name)}` | {_default(option.default)} | {doc} |")
    return "\n".join(lines)


def _default(value: Any) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value >= 1024**2 and value % 1024**2 == 0:
        return f"`{value // 1024**2}m`"
    if isinstance(value, float):
        return f"`{value:.0f}`"
    return f"`{value}`"


if __name__ == "__main__":
    print(f"{markdown(WriterOptions)}\n\n{markdown(ReaderOptions)}")
