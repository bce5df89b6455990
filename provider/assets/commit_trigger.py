"""Event trigger that starts DAGs after commits to a table by any writer."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from ...committer.errors import ZeroRenameError
from ...orchestration.delta_query import delta_table_at
from ...orchestration.new_commits import (
    ListingCursor,
    LogCursor,
    NewCommits,
    decode_cursor,
    new_commits,
    new_entries,
    present,
)
from ...orchestration.runs.arguments import invalid, read_time
from ...orchestration.runs.partitions import check_partition, table_directory
from ...orchestration.table_names import check_table_name
from ..hooks import DEFAULT_CONN_ID
from ..table_watch import look_at

if TYPE_CHECKING:
    from ...committer import Table
    from ...tables import DeltaTable

#: Seconds between an event and the note of its cursor. The triggerer passes events on every second:
#: if it dies before it has passed the event on, the cursor must not be noted.
HANDED_OVER = 5.0


class TableCommitTrigger(BaseEventTrigger):
    """Trigger with an event for new commits to a table, by any process.

    It is for an asset's watcher, whose events start DAGs::

        Asset("flights commits", watchers=[
            AssetWatcher(name="flights", trigger=TableCommitTrigger(table="s3://lake/wh/flights"))
        ])

    The event's payload has ``table`` and ``commits``: a report for each job, oldest first. A report
    has the members of the load operators' reports: ``job``, ``rows``, ``files``, ``bytes``,
    ``decided_at``, ``partitions`` (each with its ``version`` and numbers), and ``partition`` and
    ``version`` of a single partition. It also has ``owner``: who ran the job.

    All commits that one poll finds make one event. If several events come at once, Airflow starts
    one run for the first, and leaves the others to the next run. A commit is reported when readers
    by listing see all of it. A commit to a Delta table, also of another engine, is reported as soon
    as it is in the log. Compactions, which bring no rows, are not reported, nor are jobs of
    Hadoop's committers.

    The position is noted in the asset's state store (Airflow 3.3), some seconds after the event. If
    the triggerer dies in between, the event comes again with the same jobs, and no commit is
    missed. Before Airflow 3.3, a triggerer that starts again only reports commits from then on.

    :param table: ``s3://bucket/prefix``, or a name below the connection's table root.
    :param partition: report only commits that changed this partition, or one below it
        (``region=eu``).
    :param since: report commits from this time on, in ISO 8601; if it is left out, commits from now
        on. It matters only at the very first start.
    :param zero_rename_conn_id: connection of type ``zero_rename``.
    :param poke_interval: seconds between polls, more than 0. A poll takes three listings, and a few
        requests more with ``partition``; for a Delta table one listing.
    """

    def __init__(
        self,
        table: str,
        partition: str | None = None,
        since: str | datetime | None = None,
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        poke_interval: float = 60.0,
    ) -> None:
        super().__init__()
        self.table = check_table_name(table)
        self.partition = None if partition is None else check_partition(partition)
        self.since = None if since is None else read_time("since", since).isoformat()
        self.zero_rename_conn_id = zero_rename_conn_id
        if not 0 < poke_interval < math.inf:
            raise invalid(
                "poke_interval", poke_interval, "not a pause between polls", "Give such as 60.0."
            )
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("table", "partition", "since", "zero_rename_conn_id", "poke_interval")
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {name: getattr(self, name) for name in names},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event for each poll that finds commits. It does not end."""
        noted = await self._noted()
        cursor = None if noted is None else decode_cursor(noted)
        while True:
            try:
                found = await look_at(self.zero_rename_conn_id, self.table, self._look(cursor))
            except ZeroRenameError as error:
                self.log.warning("Looked in vain for commits to %s: %s", self.table, error)
                await asyncio.sleep(self.poke_interval)
                continue
            cursor = found.cursor
            if found.reports:
                yield TriggerEvent({"table": self.table, "commits": list(found.reports)})
            pause = min(HANDED_OVER, self.poke_interval) if found.reports else 0.0
            await asyncio.sleep(pause)
            if cursor.encode() != noted and await self._note(cursor.encode()):
                noted = cursor.encode()
            await asyncio.sleep(self.poke_interval - pause)

    def _look(self, cursor: ListingCursor | LogCursor | None) -> Callable[[Table], NewCommits]:
        """Return the function that polls a table once, to be called in a thread."""

        def ask(table: Table) -> NewCommits:
            since = None if self.since is None else read_time("since", self.since).timestamp()
            delta = delta_table_at(table)
            if delta is not None:
                return new_entries(delta, cursor, since, self._wanted(delta))
            now, begun = time.time(), cursor
            if begun is None:
                begun = present(table, since, now)
            elif isinstance(begun, LogCursor):
                # A Delta table was here: all commits of the table in its place are new.
                begun = ListingCursor()
            return new_commits(table, begun, now, self._wanted(table))

        return ask

    def _wanted(self, table: Table | DeltaTable) -> Callable[[str], bool]:
        """Return a function that returns whether commits to a partition are reported."""
        if self.partition is None:
            return lambda partition: True
        wanted = table_directory(table, self.partition)
        return lambda partition: f"{partition}/".startswith(f"{wanted}/")

    async def _noted(self) -> str | None:
        """Read the cursor that an earlier triggerer noted; ``None`` if there is none."""
        for store in self._stores():
            noted = await store.aget(self._note_key)
            if isinstance(noted, str):
                return noted
        return None

    async def _note(self, cursor: str) -> bool:
        """Note the cursor: commits before it were reported.

        :return: ``False`` if this failed. It must not end the trigger: the next one would report
            the same commits again. The next poll notes the cursor.
        """
        try:
            for store in self._stores():
                await store.aset(self._note_key, cursor)
        except Exception as error:
            self.log.warning(
                "How far commits to %s are told was not noted; the next look tries again: %s",
                self.table,
                error,
            )
            return False
        return True

    @property
    def _note_key(self) -> str:
        """Key of this trigger's note; an asset may have several triggers."""
        about = f"{self.zero_rename_conn_id} {self.table} {self.partition or ''}"
        return f"zero_rename_commits_{hashlib.sha256(about.encode()).hexdigest()[:16]}"

    def _stores(self) -> list[Any]:
        """Return the state stores of all assets that this trigger watches.

        Several assets share a trigger if it has the same arguments. Airflow's accessors have no
        public way to list them.
        """
        known = getattr(self, "asset_state_store", None)
        by_name, by_uri = getattr(known, "_by_name", {}), getattr(known, "_by_uri", {})
        return [*by_name.values(), *by_uri.values()]
