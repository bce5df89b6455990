"""Failure of a sensor whose partitions are ready, and not as what they were computed from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException

from ..committer.errors import InvalidInputError, counted
from .failures import final_where_refused

ON_STALE = ("ignore", "fail")
#: Partitions that an error names.
_NAMED = 5


def check_on_stale(given: str) -> None:
    """:raises InvalidInputError: it is none of :data:`ON_STALE`."""
    if given not in ON_STALE:
        raise InvalidInputError(
            f"on_stale={given!r} is unknown.", remedy=f"Choose one of {', '.join(ON_STALE)}."
        )


def refuse_stale(report: Mapping[str, Any], client: Any) -> None:
    """Look whether what was waited for is as its inputs are.

    :param report: the sensor's; its partitions without files are left out.
    :param client: a boto3 S3 client.
    :raises AirflowFailException: it is not; nor would it be by waiting.
    """
    # On use: DAG files are parsed by processes that look at nothing.
    from ..committer.format.layout import UNPARTITIONED
    from ..lineage import WRONG, look_up

    table = report["table"]
    named = [it["partition"] for it in report["partitions"] if it.get("files") != 0]
    targets = [table if name == UNPARTITIONED else f"{table}/{name}" for name in named]
    with final_where_refused():
        found = look_up(targets, client)
    wrong = [it for it in found.partitions() if it.state in WRONG]
    if wrong:
        told = "; ".join(f"{it.partition} ({it.state}): {it.why[0]}" for it in wrong[:_NAMED])
        more = f"; and {len(wrong) - _NAMED} more" if wrong[_NAMED:] else ""
        raise AirflowFailException(
            f"{counted(len(wrong), 'partition')} of {table} not as the inputs are: {told}{more}. "
            f"Say what is to be run again: zero-rename lineage plan {table}"
        )
