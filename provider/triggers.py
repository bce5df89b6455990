"""Trigger of a deferred sensor."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from ..orchestration.job_query import ERROR, WAITING, QueryResult
from ..orchestration.partitions_query import table_query
from .table_watch import watch

_log = logging.getLogger(__name__)


class SuccessManifestTrigger(BaseTrigger):
    """Trigger that polls a sensor's query until it has a final result.

    All triggers with the same table and connection share their polls (:mod:`.table_watch`). Polls
    run in a few threads, with all use of connections and boto3, so the event loop is never blocked.
    The trigger yields one event, the final result. So the sensor is deferred only once, and its
    timeout never begins again. If the store cannot be reached, the next poll asks again.

    :param query: ``as_dict`` of :class:`.JobQuery` or :class:`.PartitionsQuery`.
    :param zero_rename_conn_id: connection of type ``zero_rename``.
    :param poke_interval: seconds between polls.
    """

    def __init__(
        self, query: dict[str, Any], zero_rename_conn_id: str, poke_interval: float
    ) -> None:
        super().__init__()
        self.query = query
        self.zero_rename_conn_id = zero_rename_conn_id
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "query": self.query,
                "zero_rename_conn_id": self.zero_rename_conn_id,
                "poke_interval": self.poke_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: a :class:`.QueryResult` as a dictionary, whose state is not waiting."""
        query = table_query(self.query)
        watched = watch(self.zero_rename_conn_id, query.table)
        try:
            async for result in watched.results(query, self.poke_interval):
                if result.state == WAITING:
                    _log.info("Waiting: %s", result.explanation)
                else:
                    yield TriggerEvent(asdict(result))
        except Exception as error:
            # An event rather than an exception: with soft_fail, an exception of a trigger would
            # skip the sensor, but an error of a poke fails it.
            _log.exception("%s", query.table)
            said = f"{type(error).__name__}: {error}"
            yield TriggerEvent(asdict(QueryResult(ERROR, said)))
