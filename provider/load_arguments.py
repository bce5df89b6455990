"""Arguments of a load, checked while a DAG file is parsed, and again when they are rendered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ..committer.errors import InvalidInputError
from ..committer.format.job_spec import Mode, OnConflict
from ..orchestration.runs.partitions import (
    check_partition,
    check_partition_format,
    listed_partitions,
)
from ..orchestration.runs.task_run import check_on_repeat
from ..orchestration.submit.credentials import refuse_in_arguments, refuse_in_settings
from ..orchestration.table_names import check_catalog, check_table_name
from ..orchestration.templates import check_texts, is_known
from ..s3a.hadoop.settings import check_committer, check_options
from .task_context import ANY, no_partition

#: Arguments that are texts once they are rendered.
_TEXTS = (
    *("table", "partition_format", "mode", "on_conflict", "on_repeat", "committer", "catalog"),
    "zero_rename_conn_id",
)


class LoadArguments(Protocol):
    """The arguments, by their names on the operator."""

    table: str
    partition: Any
    partition_format: str | None
    partition_timezone: str
    mode: str | None
    on_conflict: str | None
    on_repeat: str
    committer: str | None
    catalog: str | None
    zero_rename_conn_id: str


class SparkSubmitArguments(Protocol):
    """What else a call of spark-submit has."""

    application: Any
    s3a_options: Any
    conf: Any
    application_args: Any


def check_load(task: LoadArguments, parsing: bool = False) -> None:
    """Refuse what cannot be right; while parsing, what is a template is left for later.

    :raises InvalidInputError: names the argument and what it may be.
    """

    def known(value: object) -> bool:
        return value is not None and (is_known(value) or not parsing)

    if not parsing:
        check_texts(task, _TEXTS)
    if known(task.table) or not task.table:
        check_table_name(task.table)
    if known(task.mode):
        Mode.parse(task.mode or "")
    if known(task.on_conflict) and task.on_conflict not in list(OnConflict):
        raise _unknown("on_conflict", task.on_conflict, OnConflict)
    if known(task.on_repeat) or task.on_repeat is None:
        check_on_repeat(task.on_repeat)
    if known(task.committer):
        check_committer(task.committer or "")
    if task.catalog and known(task.catalog):
        check_catalog(task.catalog)
    _check_partitions(task.partition, parsing, known)
    if known(task.partition_format):
        check_partition_format(task.partition_format or "", task.partition_timezone)


def check_spark_submit(task: SparkSubmitArguments) -> None:
    """Refuse what cannot be right of the application and its settings.

    :raises InvalidInputError: names the argument and what it may be.
    """
    if isinstance(task.application, str) and not task.application.strip():
        raise InvalidInputError(
            "application names no file; nothing was submitted.",
            remedy="Give the path or URL of the Spark application, a .py file or a jar.",
        )
    check_options(task.s3a_options)
    refuse_in_settings(task.conf, "conf")
    refuse_in_arguments(task.application_args, "application_args")


def _check_partitions(partition: Any, parsing: bool, known: Callable[[object], bool]) -> None:
    if partition is None:
        return
    if parsing and isinstance(partition, list | tuple):
        names = tuple(partition)
    elif known(partition):
        names = listed_partitions("partition", partition)
    else:
        return
    if not names:
        raise no_partition()
    for name in names if names != (ANY,) else ():
        if isinstance(name, str) and known(name):
            check_partition(name)


def _unknown(name: str, value: object, choices: Iterable[str]) -> InvalidInputError:
    return InvalidInputError(
        f"{name}={value!r} is unknown.", remedy=f"Choose one of {', '.join(choices)}."
    )
