"""The trigger of a deferred sensor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from ..committer.errors import StoreUnreachableError, ZeroRenameError
from .hooks import ZeroRenameHook
from .job_query import FAILED, WAITING, JobQuery, QueryResult

if TYPE_CHECKING:
    from ..committer import Table

_log = logging.getLogger(__name__)


class SuccessManifestTrigger(BaseTrigger):
    """Asks a sensor's query until it is decided.

    Each look runs in a thread, connections and boto3 included: the event loop is never blocked.
    The trigger ends once, with the result: there is no second deferral that could begin the
    sensor's timeout anew. A store that cannot be reached for a moment is asked again.

    :param query: :meth:`.job_query.JobQuery.as_dict`.
    :param zero_rename_conn_id: connection of type ``zero_rename``.
    :param poke_interval: seconds between looks.
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
        """Yields one event: ``state`` (``ready`` or ``failed``), ``explanation``, ``report``."""
        query = JobQuery(**self.query)
        table, explained = None, ""
        while True:
            table, result = await asyncio.to_thread(self._look, query, table)
            if result.state != WAITING:
                yield TriggerEvent(asdict(result))
                return
            if result.explanation != explained:
                explained = result.explanation
                _log.info("Waiting: %s", explained)
            await asyncio.sleep(self.poke_interval)

    def _look(self, query: JobQuery, table: Table | None) -> tuple[Table | None, QueryResult]:
        """Look once, in a thread; the table is made there too and kept for the next look."""
        try:
            if table is None:
                table = ZeroRenameHook(self.zero_rename_conn_id).get_table(query.table)
            return table, query.ask(table)
        except StoreUnreachableError as error:
            return table, QueryResult(WAITING, str(error))
        except ZeroRenameError as error:
            return table, QueryResult(FAILED, str(error))
