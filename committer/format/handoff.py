"""Hand-off: settings that a submitter passes to its application, as environment variables.

The Airflow operator submits a Spark application. By environment variables it passes the table to
write, the run and the mode. :class:`Handoff` has all that can be passed; :meth:`Handoff.encode`
makes the variables and :meth:`Handoff.decode` reads them. The names of this package's environment
variables stand in this module and nowhere else, except the one with the store's address
(:mod:`.store.client_settings`). No variable is a secret: some clusters show them.

A user may set any of them by hand, and an application may read them.

Some services carry variables as words of a request, or carry none. They get all variables as one
text (:meth:`Handoff.pack`) of letters, digits, hyphens and underscores, which have no special
meaning to any shell. It travels as the variable :data:`HANDOFF`, or as the Spark setting
:data:`HANDOFF_SETTING`.
"""

# ruff: noqa: RUF009 - _variable() is dataclasses.field() with the metadata of this module
from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import partial
from typing import Any

from ..errors import InvalidInputError, without_secrets
from ..store.encryption import Encryption
from ..store.fast_root import FastRoot
from . import text_values as values
from .job_spec import (
    Distribute,
    Mode,
    OnConflict,
    OnRepeat,
    OnSuperseded,
    Owner,
    SuccessMarkers,
    TableLayout,
)
from .layout import TableRoot
from .run_rank import RunRanks

#: Variable of Spark's workers: the folder of notes on open jobs.
OPEN_JOBS = "ZERO_RENAME_OPEN_JOBS"
#: Variable of Spark's workers: the level of this package's log.
LOG_LEVEL = "ZERO_RENAME_LOG_LEVEL"
#: Variable that carries all others as one text.
HANDOFF = "ZERO_RENAME_HANDOFF"
#: Spark setting that carries the same text if the driver's variables cannot be set.
HANDOFF_SETTING = "spark.zero_rename.handoff"
#: Linux's limit for one variable, with pages of 4 KiB: name, equals sign, value and a zero byte.
LONGEST = 128 * 1024


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("is blank")
    return text


def _true(text: str) -> bool:
    if text.strip().lower() != "true":
        raise ValueError("is true")
    return True


def _false(text: str) -> bool:
    if text.strip().lower() != "false":
        raise ValueError("is false")
    return False


def _variable(name: str, parse: Callable[[str], Any], doc: str, default: Any = None) -> Any:
    """Make a field that travels as an environment variable.

    :param parse: parses its text; raises ``ValueError`` with the form that was expected.
    :param doc: its meaning, for errors and documentation.
    """
    return field(default=default, metadata={"variable": name, "parse": parse, "doc": doc})


@dataclass(frozen=True)
class Handoff:
    """The settings that a submitter passes to its application; ``None``: not passed."""

    table: TableRoot | None = _variable(
        "ZERO_RENAME_TABLE",
        values.read_by(TableRoot.parse, "is a table's root, s3://bucket/prefix"),
        "The table's root. What else is said is about this table only.",
    )
    committer: str | None = _variable(
        "ZERO_RENAME_COMMITTER", _text, "The committer, zero_rename or one of Hadoop's."
    )
    mode: Mode | None = _variable(
        "ZERO_RENAME_MODE", values.mode, "The mode: append, replace, fail-if-exists or merge."
    )
    #: Hive-escaped paths; ``None`` for any.
    partitions: tuple[str, ...] | None = _variable(
        "ZERO_RENAME_PARTITIONS",
        values.PATHS.decode,
        "The only partitions that rows may be for, day=2013-01-01;day=2013-01-02 or a JSON list; "
        "with mode replace they are emptied even if no row arrives. [] names none: all rows are "
        "refused.",
    )
    on_conflict: OnConflict | None = _variable(
        "ZERO_RENAME_ON_CONFLICT",
        partial(values.choice, OnConflict),
        "What to do when another job changed a partition meanwhile.",
    )
    on_superseded: OnSuperseded | None = _variable(
        "ZERO_RENAME_ON_SUPERSEDED",
        partial(values.choice, OnSuperseded),
        "What to do when a newer run has loaded a partition, where the newest run wins.",
    )
    run_rank: RunRanks | None = _variable(
        "ZERO_RENAME_RUN_RANK",
        RunRanks.parse,
        "How new the run is: a number, a date or a time, or JSON with several by partition.",
    )
    success_markers: SuccessMarkers | None = _variable(
        "ZERO_RENAME_SUCCESS_MARKERS",
        partial(values.choice, SuccessMarkers),
        "Where _SUCCESS goes.",
    )
    distribute: Distribute | None = _variable(
        "ZERO_RENAME_DISTRIBUTE",
        partial(values.choice, Distribute),
        "Whether the rows of a partition are brought together first.",
    )
    merge_on: tuple[str, ...] = _variable(
        "ZERO_RENAME_MERGE_ON",
        values.NAMES.decode,
        "With mode merge, the key's columns, separated by commas or as a JSON list.",
        (),
    )
    delete_when: str | None = _variable(
        "ZERO_RENAME_DELETE_WHEN",
        _text,
        "With mode merge, a condition in Spark's SQL: rows of which it is true delete what they "
        "match.",
    )
    latest_by: str | None = _variable(
        "ZERO_RENAME_LATEST_BY",
        _text,
        "With mode merge, the column by which the last of several rows of a key counts, the "
        "table's own among them.",
    )
    across_partitions: bool | None = _variable(
        "ZERO_RENAME_ACROSS_PARTITIONS",
        _true,
        "With mode merge, true: a row matches those of all partitions, and moves.",
    )
    idempotency_key: str | None = _variable(
        "ZERO_RENAME_IDEMPOTENCY_KEY", _text, "The key that makes the write happen once."
    )
    on_repeat: OnRepeat | None = _variable(
        "ZERO_RENAME_ON_REPEAT",
        partial(values.choice, OnRepeat),
        "What to do when a job with this key has committed before.",
    )
    layout: TableLayout | None = _variable(
        "ZERO_RENAME_LAYOUT",
        partial(values.choice, TableLayout),
        "How the table is kept: directory, or delta, as a Delta table.",
    )
    publish: bool | None = _variable(
        "ZERO_RENAME_PUBLISH",
        _false,
        "false: the rows of a Delta table are written, and nobody sees them before somebody "
        "publishes the job.",
    )
    data_root: FastRoot | None = _variable(
        "ZERO_RENAME_DATA_ROOT", values.fast_root, "Where the files of a new Delta table lie first."
    )
    encryption: Encryption | None = _variable(
        "ZERO_RENAME_ENCRYPTION",
        values.encryption,
        "The encryption by the store of a table whose record names none: SSE-S3, SSE-KMS or "
        "DSSE-KMS, and with KMS perhaps a blank and the key.",
    )
    code_version: str | None = _variable(
        "ZERO_RENAME_CODE_VERSION",
        values.code_version,
        "Which version of the program's code computes the rows.",
    )
    dag: str | None = _variable("ZERO_RENAME_DAG", _text, "The DAG that runs the application.")
    run: str | None = _variable("ZERO_RENAME_RUN", _text, "The DAG run.")
    task: str | None = _variable("ZERO_RENAME_TASK", _text, "The task.")
    map_index: int | None = _variable("ZERO_RENAME_MAP_INDEX", values.whole, "The map index.")
    try_number: int | None = _variable(
        "ZERO_RENAME_TRY_NUMBER", values.whole, "The number of the task's attempt."
    )
    series: str | None = _variable(
        "ZERO_RENAME_SERIES",
        _text,
        "A text that all attempts of the task share until its run is made anew or cleared.",
    )
    s3a_run: str | None = _variable(
        "ZERO_RENAME_S3A_RUN",
        _text,
        "With one of Hadoop's committers, the attempt's UUID, under which its writes are on "
        "record.",
    )
    replace_table: bool | None = _variable(
        "ZERO_RENAME_REPLACE_TABLE",
        _true,
        "With mode replace and no partitions named, true: what the table had is gone even if no "
        "row arrives.",
    )

    @staticmethod
    def variable(name: str) -> str:
        """Return the environment variable of a field."""
        return _VARIABLES[name].metadata["variable"]

    @staticmethod
    def decode(environ: Mapping[str, str]) -> Handoff:
        """Read the hand-off from an environment.

        Empty variables count as absent. A variable that is set wins over its value in
        :data:`HANDOFF`.

        :raises InvalidInputError: a variable has an invalid value.
        """
        packed = _unpacked(environ.get(HANDOFF, ""))
        names = {name: Handoff.variable(name) for name in _VARIABLES}
        _refuse_unknown(packed.keys() - names.values())
        texts = {name: environ.get(said) or packed.get(said) for name, said in names.items()}
        return Handoff(**{n: _decoded(_VARIABLES[n], text) for n, text in texts.items() if text})

    def encode(self) -> dict[str, str]:
        """Return the environment variables.

        :raises InvalidInputError: a value that no variable can carry.
        """
        given = {name: getattr(self, name) for name in _VARIABLES}
        return {
            Handoff.variable(name): _encoded(_VARIABLES[name], value)
            for name, value in given.items()
            if value is not None and value != _VARIABLES[name].default
        }

    def pack(self) -> str:
        """Return all variables as one text of ``[A-Za-z0-9_-]``.

        :raises InvalidInputError: a value that no variable can carry.
        """
        text = json.dumps(self.encode(), sort_keys=True).encode()
        return base64.urlsafe_b64encode(zlib.compress(text, 9)).rstrip(b"=").decode()

    @property
    def owner(self) -> Owner:
        """Task of the run that submits the application."""
        return Owner(
            dag_id=self.dag,
            run_id=self.run,
            task_id=self.task,
            map_index=self.map_index,
            try_number=self.try_number,
            series=self.series,
        )

    def about(self, root: TableRoot) -> Handoff:
        """Return the settings that hold for ``root``.

        These are all, unless they name another table: then only the committer.
        """
        if self.table in (None, root):
            return self
        return Handoff(committer=self.committer)


_VARIABLES: Mapping[str, Field[Any]] = {option.name: option for option in fields(Handoff)}


def _unpacked(text: str) -> dict[str, str]:
    if not text.strip():
        return {}
    try:
        packed = base64.urlsafe_b64decode(text.strip() + "=" * (-len(text.strip()) % 4))
        inflating = zlib.decompressobj()
        said = json.loads(inflating.decompress(packed, len(_VARIABLES) * LONGEST))
        if isinstance(said, dict) and all(isinstance(value, str) for value in said.values()):
            return said
    except (ValueError, zlib.error, binascii.Error, RecursionError):
        pass
    raise InvalidInputError(
        f"The environment variable {HANDOFF} (or the setting {HANDOFF_SETTING}) is not what a "
        f"submitter of this package writes: {text[:40]!r}; nothing was read or written.",
        remedy="Leave it out: the submitter sets it.",
    )


def _refuse_unknown(names: Collection[str]) -> None:
    """Refuse variables of a newer submitter, which this version does not know.

    An application that ignored them would not obey them: it might publish rows that were to be
    held back.
    """
    if not names:
        return
    raise InvalidInputError(
        f"The environment variable {HANDOFF} (or the setting {HANDOFF_SETTING}) says "
        f"{', '.join(sorted(names))[:200]}, which this version of the package does not know: the "
        "one that submits is newer. Nothing was read or written.",
        remedy="Install the submitter's version where the application runs, or give the "
        "submitter ship_package=True, which sends it.",
    )


def _decoded(option: Field[Any], text: str) -> Any:
    try:
        return option.metadata["parse"](text)
    except ValueError as error:
        raise InvalidInputError(
            f"The environment variable {option.metadata['variable']} {error}, not "
            f"{without_secrets(text)!r}; nothing was read or written.",
            remedy=f"{option.metadata['doc']} Set it to that, or leave it out.",
        ) from error


def _encoded(option: Field[Any], value: Any) -> str:
    name = option.metadata["variable"]
    if isinstance(value, tuple):
        text = json.dumps(value)
    else:
        text = value.url if isinstance(value, TableRoot) else str(value)
        text = text.lower() if isinstance(value, bool) else text
    try:
        size = len(f"{name}={text}\0".encode(errors="surrogateescape"))
        comes_back = "\0" not in text and option.metadata["parse"](text) == value
    except ValueError:
        size, comes_back = 0, False
    if not comes_back:
        raise InvalidInputError(
            f"The environment variable {name} cannot carry {text[:200]!r}; nothing was submitted.",
            remedy=f"{option.metadata['doc']} No such text may be blank or hold a zero byte.",
        )
    if size > LONGEST:
        raise _too_long(name, size, value)
    return text


def _too_long(name: str, size: int, value: Any) -> InvalidInputError:
    what, remedy = "", "Shorten it."
    if isinstance(value, tuple):
        what = f" with its {len(value):,} partitions"
        remedy = (
            "Spread the partitions over several tasks, in Dagster over several runs "
            "(BackfillPolicy.multi_run(…)); or submit with partition='*' and let the application "
            "name them itself, by save(partitions=[...])."
        )
    return InvalidInputError(
        f"The environment variable {name} would have {size:,} bytes{what}, and an operating "
        f"system carries {LONGEST:,}; nothing was submitted.",
        remedy=remedy,
    )
