"""One call by which an application writes a table, whichever committer its submission chose.

::

    from zero_rename.spark import save

    save(frame, "s3://bucket/flights", partition_by=["year", "month", "day"], mode="overwrite")

Natively this is ``frame.write.format("zero_rename")``. With one of Hadoop's S3A committers it is
Parquet through ``s3a://`` (:mod:`.s3a.recorded_write`), with checks on the session first. The word
comes from ``ZERO_RENAME_COMMITTER``, which the Airflow operator sets by its ``committer=``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..committer.errors import InvalidInputError
from ..committer.job_spec import Mode
from ..committer.layout import TableRoot
from ..s3a.hadoop.settings import Committer
from ..s3a.write_plan import mode_of
from . import option_values
from .options import TABLE_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NATIVE = "zero_rename"
COMMITTER_VARIABLE = "ZERO_RENAME_COMMITTER"
MODE_VARIABLE = "ZERO_RENAME_MODE"
#: JSON, since a partition's value may hold any separator.
PARTITIONS_VARIABLE = "ZERO_RENAME_PARTITIONS"


@dataclass(frozen=True)
class Asked:
    """What a call of :func:`save` and the environment come to.

    :param mode: ``None``: nobody said, which is append.
    :param partitions: the only ones that may be written, as Hive-escaped paths; none for any.
    :param options: of Spark's writer.
    """

    root: TableRoot
    committer: str
    mode: Mode
    partition_by: tuple[str, ...]
    partitions: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)


def save(
    frame: DataFrame,
    table: str | None = None,
    *,
    partition_by: Sequence[str] = (),
    mode: str | None = None,
    partitions: Sequence[str] | None = None,
    committer: str | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Write a frame into a table, as one job (magic, directory and classic: one for each
    partition named, where those are replaced).

    :param table: ``s3://bucket/prefix``; ``None`` for the one that the operator names.
    :param partition_by: partition columns, outermost first; natively, the table's own where left
        out.
    :param mode: ``append``, ``overwrite`` (replace the partitions named or written) or
        ``fail-if-exists``; ``None`` for what the operator asks for, else append.
    :param partitions: the only partitions that may be written, ``["day=2013-01-01"]``; with
        overwrite they are emptied even if no row arrives. ``None`` for those that the operator
        names.
    :param committer: ``zero_rename``, ``magic``, ``directory``, ``partitioned`` or ``classic``;
        ``None`` for what the operator says, else ``zero_rename``. The session has to be
        configured for it, as the operator does.
    :param options: further options of the writer: ``format("zero_rename")``'s natively, else
        Parquet's, such as ``compression``.
    :raises InvalidInputError: a call that cannot be right, or one that contradicts the operator.
    :raises SettingsRefusedError: the session's settings would lose or double rows. In either case
        nothing was written.
    """
    asked = resolve(table, partition_by, mode, partitions, committer, options or {}, os.environ)
    if asked.committer == NATIVE:
        _save_natively(frame, asked)
        return
    from .s3a.recorded_write import save_by_s3a

    save_by_s3a(frame, asked, os.environ)


def resolve(
    table: str | None,
    partition_by: Sequence[str],
    mode: str | None,
    partitions: Sequence[str] | None,
    committer: str | None,
    options: Mapping[str, str],
    environ: Mapping[str, str],
) -> Asked:
    """The arguments of :func:`save`, completed by what the operator says about its table."""
    url = table or environ.get(TABLE_VARIABLE)
    if not url:
        raise InvalidInputError(
            "No table is named; nothing was written.",
            remedy="Give save() a table, s3://bucket/prefix, or submit by the operator.",
        )
    root = TableRoot.parse(url)
    named = environ.get(TABLE_VARIABLE)
    mine = named is None or TableRoot.parse(named) == root
    said: Mapping[str, str] = environ if mine else {}
    if isinstance(partition_by, str):
        raise InvalidInputError("partition_by is a list of columns, not a string.")
    return Asked(
        root=root,
        committer=_committer(committer or environ.get(COMMITTER_VARIABLE) or NATIVE),
        mode=_mode(mode, said.get(MODE_VARIABLE)),
        partition_by=tuple(partition_by),
        partitions=_partitions(partitions, said.get(PARTITIONS_VARIABLE)),
        options=dict(options),
    )


def _committer(word: str) -> str:
    if word != NATIVE and word not in list(Committer):
        raise InvalidInputError(
            f"There is no committer {word!r}; nothing was written.",
            remedy=f"Choose one of {', '.join((NATIVE, *Committer))}.",
        )
    return word


def _mode(given: str | None, expected: str | None) -> Mode:
    if given is None:
        return mode_of(expected) if expected else Mode.APPEND
    mode = mode_of(given)
    if expected and mode_of(expected) is not mode:
        raise InvalidInputError(
            f"The application writes with mode {given!r}, and {expected} is asked for "
            f"({MODE_VARIABLE}, which the Airflow operator's mode= sets); nothing was written.",
            remedy="Change the application's mode=, or leave one of the two out.",
        )
    return mode


def _partitions(given: Sequence[str] | None, named: str | None) -> tuple[str, ...]:
    allowed = option_values.paths(named) if named else ()
    if given is None:
        return allowed
    if isinstance(given, str):
        raise InvalidInputError("partitions is a list of paths, not a string.")
    wanted = tuple(dict.fromkeys(given))
    others = sorted(set(wanted) - set(allowed)) if allowed else []
    if others:
        raise InvalidInputError(
            f"The application writes {', '.join(others[:5])}, and its task is about "
            f"{', '.join(allowed[:5])}; nothing was written.",
            remedy="Mend the application's partitions= or the task's partition.",
        )
    return wanted


def _save_natively(frame: DataFrame, asked: Asked) -> None:
    from .registration import register

    register(frame.sparkSession)
    replacing = asked.mode is Mode.REPLACE
    given = dict(asked.options)
    if asked.partition_by:
        given["partitionBy"] = ",".join(asked.partition_by)
    if asked.mode is Mode.FAIL_IF_EXISTS:
        given["failIfExists"] = "true"
    if asked.partitions:
        word = "replacePartitions" if replacing else "onlyPartitions"
        given[word] = json.dumps(asked.partitions)
    writer = frame.write.format(NATIVE).mode("overwrite" if replacing else "append")
    writer.options(**given).save(asked.root.url)
