"""Staleness of partitions that a sensor has waited for: fail, or run stale ones again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from ..committer.errors import InvalidInputError, counted
from ..orchestration.runs.arguments import read_versions
from ..s3a.hadoop.settings import Committer
from .failures import final_where_refused
from .hooks import ZeroRenameHook
from .recomputed import Recomputed, wait
from .recomputing import Recomputing, refuse_hadoops
from .task_context import task_run

if TYPE_CHECKING:
    from airflow.sdk import Context

ON_STALE = ("ignore", "fail", "recompute")
#: Partitions that an error names.
_NAMED = 5
_WITHOUT_INPUTS = "Leave on_stale out; or load the table with committer='zero_rename'."


def check_on_stale(given: str, forgets: bool, code_versions: object, committer: str | None) -> None:
    """Check the arguments of a sensor about staleness.

    :param given: the argument ``on_stale``.
    :param forgets: the sensor is rescheduled between two polls, and keeps no progress.
    :param code_versions: the argument.
    :param committer: the argument; it may be a template.
    :raises InvalidInputError: ``on_stale`` is not one of :data:`ON_STALE`, or the sensor cannot do
        it.
    """
    if given not in ON_STALE:
        raise InvalidInputError(
            f"on_stale={given!r} is unknown.", remedy=f"Choose one of {', '.join(ON_STALE)}."
        )
    if given == "ignore" and code_versions is not None:
        raise InvalidInputError(
            "code_versions says what is stale, and on_stale='ignore' asks for none of it.",
            remedy="Choose on_stale='fail' or on_stale='recompute', or leave code_versions out.",
        )
    if given == "recompute" and forgets:
        raise InvalidInputError(
            "on_stale='recompute' waits for what it runs again, and a sensor that is rescheduled "
            "forgets what that is.",
            remedy="Give deferrable=True: it holds no slot either.",
        )
    if given != "ignore" and committer in list(Committer):
        raise InvalidInputError(
            f"on_stale={given!r} compares partitions with the inputs on record, and "
            f"committer={committer!r}, one of Hadoop's, records none: nothing would be stale.",
            remedy=_WITHOUT_INPUTS,
        )


def see_to_stale(sensor: Any, context: Context, report: Mapping[str, Any]) -> bool:
    """Carry out ``on_stale`` for the partitions that a sensor has waited for.

    :param report: of the sensor; its partitions without files are left out.
    :return: whether partitions were made again, so that the report is outdated.
    :raises AirflowFailException: a partition is stale, and stays so; or Hadoop's committers load
        the table, so that this cannot be known.
    """
    if sensor.on_stale == "ignore":
        return False
    # Imported on use: processes that only parse DAG files need not load it.
    from ..committer.format.layout import UNPARTITIONED
    from ..lineage import WRONG, look_up

    table = report["table"]
    named = [it["partition"] for it in report["partitions"] if it.get("files") != 0]
    targets = [table if name == UNPARTITIONED else f"{table}/{name}" for name in named]
    hook = ZeroRenameHook(sensor.zero_rename_conn_id)
    with final_where_refused():
        refuse_hadoops(hook, targets, _WITHOUT_INPUTS)
    if sensor.on_stale == "recompute":
        return bool(make_ready_again(sensor, context, targets).layers)
    with final_where_refused():
        versions = versions_by_root(hook, sensor.code_versions)
        # A later job may have emptied what the job of the report has loaded.
        found = look_up(targets, hook.get_conn(), code_versions=versions, may_be_empty=True)
    wrong = [it for it in found.partitions() if it.state in WRONG]
    if not wrong:
        return False
    told = "; ".join(f"{it.partition} ({it.state}): {it.why[0]}" for it in wrong[:_NAMED])
    more = f"; and {len(wrong) - _NAMED} more" if wrong[_NAMED:] else ""
    raise AirflowFailException(
        f"{counted(len(wrong), 'partition')} of {table} not as the inputs are: {told}{more}. "
        f"Say what is to be run again: zero-rename lineage plan {table}"
    )


def make_ready_again(
    sensor: Any, context: Context, of: list[str] | Mapping[str, Any]
) -> Recomputed:
    """Run jobs again until the partitions that a sensor has waited for match their inputs.

    A partition that is empty by now is left out.

    :param of: as for :func:`make_again`.
    """
    return make_again(sensor, context, of, sensor.poke_interval, may_be_empty=True)


def make_again(
    task: Any, context: Context, of: list[str] | Mapping[str, Any], pause: float, **how: Any
) -> Recomputed:
    """Run jobs again until partitions match their inputs.

    :param task: the sensor or operator, for its connections, ``timeout`` and ``deferrable``.
    :param of: the partitions' URLs, or the progress before a wait.
    :param pause: seconds between polls.
    :param how: arguments of :class:`.Recomputing`.
    :raises AirflowFailException: as :class:`.Recomputing`.
    """
    hook = ZeroRenameHook(task.zero_rename_conn_id)
    planner = task_run(dict(context)).named
    with final_where_refused():
        versions = versions_by_root(hook, task.code_versions)
    engine = Recomputing(
        hook, task.airflow_conn_id, planner, task.timeout, code_versions=versions, **how
    )
    progress = Recomputed.of(of) if isinstance(of, Mapping) else engine.begin(of)
    return engine.to_end(progress, partial(wait, task, pause, task.deferrable))


def versions_by_root(hook: ZeroRenameHook, given: object) -> dict[str, str]:
    """Return the present versions of programs' code, by their tables' roots.

    :param given: versions by table, as a task names the table; ``None``: none.
    :raises InvalidInputError: not such versions, for example because of a template.
    """
    known = {} if given is None else read_versions("code_versions", given)
    return {hook.table_url(name): version for name, version in known.items()}
