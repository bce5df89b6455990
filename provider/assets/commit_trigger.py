"""Event trigger that starts DAGs on commits to a table, whoever makes them."""

from __future__ import annotations

import asyncio
import hashlib
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
from ...orchestration.runs.arguments import read_time
from ...orchestration.runs.partitions import check_partition, table_directory
from ...orchestration.table_names import check_table_name
from ..hooks import DEFAULT_CONN_ID
from ..table_watch import look_at

if TYPE_CHECKING:
    from ...committer import Table
    from ...tables import DeltaTable

#: Seconds between an event and the note that it was told: until then a triggerer that dies has not
#: told it. The triggerer hands events over every second.
HANDED_OVER = 5.0


class TableCommitTrigger(BaseEventTrigger):
    """Events of commits to a table, by whichever process: an operator, Spark, a notebook.

    For an asset's watcher, whose events start DAGs::

        Asset("flights commits", watchers=[
            AssetWatcher(name="flights", trigger=TableCommitTrigger(table="s3://lake/wh/flights"))
        ])

    The event's payload has ``table`` and ``commits``, oldest first: the report of each job, as of
    the load operators, with ``job``, ``rows``, ``files``, ``bytes``, ``decided_at``, ``partitions``
    with ``version`` and numbers of each, for a single one ``partition`` and ``version``; and
    ``owner``, who ran it. What one look finds is one event: of several at once Airflow starts one
    run, by the first, and leaves the others to the run after it. A commit is told when readers that
    list see all of it; one to a Delta table, also by another engine, as its log has it.
    Compactions, which bring no rows, are none, nor are jobs of Hadoop's committers.

    How far it has come is noted in the asset's state store (Airflow 3.3), some seconds after the
    event: a triggerer that dies in between tells it again, with the same jobs, and none is missed.
    Before Airflow 3.3 a triggerer that starts anew begins with what is committed then.

    :param table: ``s3://bucket/prefix``, or a name below the connection's table root.
    :param partition: only commits that changed this partition, or some below it (``region=eu``).
    :param since: begin with what was committed after this time, ISO 8601; left out, with what is
        committed from now on. It matters at the very first start only.
    :param zero_rename_conn_id: connection of type ``zero_rename``.
    :param poke_interval: seconds between looks, each of three listings, with a partition of a few
        requests more; at a Delta table of one listing.
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
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("table", "partition", "since", "zero_rename_conn_id", "poke_interval")
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {name: getattr(self, name) for name in names},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yields an event for each look that finds commits; does not end."""
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
        """One look, for a thread."""

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
        """Tells partitions whose commits are asked for."""
        if self.partition is None:
            return lambda partition: True
        wanted = table_directory(table, self.partition)
        return lambda partition: f"{partition}/".startswith(f"{wanted}/")

    async def _noted(self) -> str | None:
        """How far an earlier triggerer came, as far as anybody knows."""
        for store in self._stores():
            noted = await store.aget(self._note_key)
            if isinstance(noted, str):
                return noted
        return None

    async def _note(self, cursor: str) -> bool:
        """Note how far the commits are told. ``False``: it failed, and is to be tried again: the
        trigger's end would begin another that tells them once more."""
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
        """Of this trigger, where an asset has several."""
        about = f"{self.zero_rename_conn_id} {self.table} {self.partition or ''}"
        return f"zero_rename_commits_{hashlib.sha256(about.encode()).hexdigest()[:16]}"

    def _stores(self) -> list[Any]:
        """Where each asset that is watched keeps notes: several have the same trigger where it is
        made of the same arguments, and the accessors offer no way to go through them."""
        known = getattr(self, "asset_state_store", None)
        by_name, by_uri = getattr(known, "_by_name", {}), getattr(known, "_by_uri", {})
        return [*by_name.values(), *by_uri.values()]
