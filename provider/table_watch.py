"""Polls that the triggers of one process share: one at a time for each table and connection."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context as Variables
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from ..committer.errors import (
    InvalidInputError,
    StoreRefusedError,
    StoreUnreachableError,
    UnfinishedUpkeepError,
    ZeroRenameError,
)
from ..orchestration.delta_query import log_state
from ..orchestration.job_query import ERROR, FAILED, WAITING, QueryResult, ReadMarker
from ..orchestration.look import State, look
from ..orchestration.partitions_query import PartitionsQuery, TableQuery, as_found, spelled
from ..orchestration.runs.partitions import table_spelling
from .compat import AskStates, asks_states, states_of_tasks
from .hooks import ZeroRenameHook

if TYPE_CHECKING:
    from ..committer import Table
    from ..tables import DeltaTable

T = TypeVar("T")
_log = logging.getLogger(__name__)
#: Seconds after which a connection is read again: keys change, and a triggerer lives long.
REFRESH = 300.0
#: Seconds between polls for an interval of 0: polls without a pause would take the threads of all
#: triggers, and a store's requests.
_FOR_ZERO = 1.0
#: Threads that poll. There are few, so that the event loop keeps its share of the interpreter.
_LOOKERS = ThreadPoolExecutor(4, thread_name_prefix="zero-rename-look")


class SharedTables:
    """Tables of this process; all tables of one connection share the same two clients.

    :param clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._hooks: dict[str, tuple[float, ZeroRenameHook, dict[str, Table]]] = {}

    def hook(self, conn_id: str) -> ZeroRenameHook:
        """Return the hook of a connection, which was read at most :data:`REFRESH` seconds ago."""
        with self._lock:
            return self._made(conn_id)[1]

    def table(self, conn_id: str, url: str) -> Table:
        """Return the table at ``url``; its connection was read at most :data:`REFRESH` seconds ago.

        :raises InvalidInputError: the connection cannot be used.
        """
        with self._lock:
            _, hook, tables = self._made(conn_id)
            if url not in tables:
                tables[url] = hook.get_table(url)
            return tables[url]

    def _made(self, conn_id: str) -> tuple[float, ZeroRenameHook, dict[str, Table]]:
        made = self._hooks.get(conn_id)
        if made is None or self._clock() - made[0] >= REFRESH:
            made = self._hooks[conn_id] = (self._clock(), ZeroRenameHook(conn_id), {})
        return made

    def drop(self, conn_id: str) -> None:
        """Forget a connection, so that it is read again next time."""
        with self._lock:
            self._hooks.pop(conn_id, None)

    def forget(self, conn_id: str, table: Table) -> bool:
        """Forget the connection by which a table was opened, so that it is read again next time.

        :return: ``False`` if it was read in the last second: to read it again would not help.
        """
        with self._lock:
            known = self._hooks.get(conn_id)
            if known is None or known[2].get(table.root.url) is not table:
                return True  # For another table it was forgotten, or has been read again, since.
            del self._hooks[conn_id]
            return self._clock() - known[0] > 1.0


@dataclass(eq=False)
class _Waiter:
    """A trigger, with the states and the result of its last poll."""

    query: TableQuery
    interval: float
    results: asyncio.Queue[QueryResult | BaseException] = field(default_factory=asyncio.Queue)
    due: float = 0.0
    states: tuple[State, ...] | None = None
    last: QueryResult | None = None


class TableWatch:
    """Polls of one table, for all triggers of an event loop that wait for it.

    A poll lists the keys of all queries at once. A query sends requests of its own only if one of
    its keys has changed. Triggers that are due within half their interval join the poll of the
    first one.

    :param tables: from which the table is taken.
    :param clock: returns monotonic seconds.
    """

    def __init__(
        self,
        conn_id: str,
        url: str,
        tables: SharedTables,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conn_id = conn_id
        self._url = url
        self._tables = tables
        self._clock = clock
        self._pages: dict[str, int] = {}
        #: State of a Delta table's log at the last poll.
        self._seen: dict[str, State] = {}
        self._waiters: list[_Waiter] = []
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def results(self, query: TableQuery, interval: float) -> AsyncIterator[QueryResult]:
        """Yield the results of polls that differ from the result before.

        The last one is not :data:`.job_query.WAITING`.

        :param interval: seconds between polls; 0, which Airflow allows a sensor, is a second here.
        """
        waiter = _Waiter(query, interval or _FOR_ZERO)
        self._waiters.append(waiter)
        self._arrived.set()
        if self._task is None or self._task.done():
            # In a new context: in this trigger's, the log messages would have its name.
            self._task = asyncio.create_task(self._keep_looking(), context=Variables())
            self._task.add_done_callback(self._ended)
        try:
            while True:
                result = await waiter.results.get()
                if isinstance(result, BaseException):
                    raise result
                yield result
                if result.state != WAITING:
                    return
        finally:
            self._waiters.remove(waiter)
            self._arrived.set()

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiters:
            now = self._clock()
            if any(waiter.due <= now for waiter in self._waiters):
                joined = [w for w in self._waiters if w.due <= now + w.interval / 2]
                for waiter, result in await loop.run_in_executor(_LOOKERS, self._look, joined):
                    self._tell(waiter, result)
                    waiter.due = self._clock() + waiter.interval
                continue
            self._arrived.clear()
            pause = min(waiter.due for waiter in self._waiters) - now
            try:
                await asyncio.wait_for(self._arrived.wait(), pause)
            except TimeoutError:
                continue

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Pass an unexpected error on to all triggers; without an error, none is left waiting."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            for waiter in self._waiters:
                waiter.results.put_nowait(error)

    def _tell(self, waiter: _Waiter, result: QueryResult) -> None:
        last, waiter.last = waiter.last, result
        if last is None or result.state != WAITING or result.explanation != last.explanation:
            waiter.results.put_nowait(result)

    def _look(self, joined: list[_Waiter]) -> list[tuple[_Waiter, QueryResult]]:
        """Poll once, in a thread."""
        queries = [waiter.query for waiter in joined]
        ended = states_of_tasks(
            _task_states(), (q.idempotency_key for q in queries if q.idempotency_key is not None)
        )
        table = None
        try:
            table = self._tables.table(self._conn_id, self._url)
            answers = self._ask(table, joined, ended)
        except StoreUnreachableError as error:
            answers = [QueryResult(WAITING, str(error))] * len(joined)
        except StoreRefusedError as error:
            if table is not None and self._tables.forget(self._conn_id, table):
                answers = [QueryResult(WAITING, f"To be asked again: {error}")] * len(joined)
            else:
                answers = [QueryResult(ERROR, str(error))] * len(joined)
        except ZeroRenameError as error:
            answers = [_without_answer(error)] * len(joined)
        finally:
            if table is not None:
                table.driver.close()
        return list(zip(joined, answers, strict=True))

    def _ask(self, given: Table, joined: list[_Waiter], ended: dict[str, str]) -> list[QueryResult]:
        # Imported on use: processes that only parse DAG files need not load it.
        from ..tables import DeltaTable

        table = as_found(given, [waiter.query for waiter in joined])
        spelling = cache(lambda: table_spelling(table))
        refused: dict[_Waiter, QueryResult] = {}
        for waiter in joined:
            try:
                waiter.query = spelled(waiter.query, spelling)
            except InvalidInputError as error:
                refused[waiter] = QueryResult(FAILED, str(error))
        if isinstance(table, DeltaTable):
            watched = [("log",)] * len(joined)
            seen = self._seen = {"log": log_state(table, self._seen.get("log"))}
            marker = None
        else:
            watched = [waiter.query.watched(table.root) for waiter in joined]
            seen = table.run(look({name for names in watched for name in names}, self._pages))
            marker = cache(table.stored_marker)
        answers = []
        for waiter, names in zip(joined, watched, strict=True):
            states = tuple(seen[name] for name in names)
            result = waiter.last
            if waiter in refused:
                result = refused[waiter]
            elif result is None or not result.quiet or states != waiter.states:
                nothing = bool(names) and not any(states)
                result = _answer(waiter.query, table, seen, marker if nothing else None)
            waiter.states = states
            state = ended.get(waiter.query.idempotency_key or "")
            if result is waiter.last and waiter.query.after(result, state) != result:
                # Ask again: the task's application may outlive the task, which a log's listing does
                # not show.
                result = _answer(waiter.query, table, seen, None)
            answers.append(waiter.query.after(result, state))
        return answers


def _answer(
    query: TableQuery,
    table: Table | DeltaTable,
    seen: Mapping[str, State],
    marker: ReadMarker | None,
) -> QueryResult:
    """Return the result of one query.

    :param seen: the objects at the keys of the query.
    :param marker: reads a ``_SUCCESS``; given if there is nothing at the keys.
    :return: an unexpected error is the result, too: it fails this query's sensor alone.
    :raises StoreRefusedError: the store refused; this holds for all queries.
    """
    try:
        if isinstance(query, PartitionsQuery):
            return query.ask(table, seen)
        if marker is not None and query.is_of_a_head:
            return query.not_there(marker)
        return query.ask(table)
    except (StoreUnreachableError, UnfinishedUpkeepError) as error:
        return QueryResult(WAITING, str(error))
    except StoreRefusedError:
        raise
    except ZeroRenameError as error:
        return _without_answer(error)
    except Exception as error:
        # Of this query alone: raised here it would end the polls of all triggers of the table.
        _log.exception("A query of %s has failed", table.root.url)
        return QueryResult(ERROR, f"{type(error).__name__}: {error}")


def _without_answer(error: ZeroRenameError) -> QueryResult:
    """Return the result of a failed poll, which fails the sensor as a poke in a worker would.

    An invalid argument is final; any other error may be over at the next attempt.
    """
    return QueryResult(FAILED if isinstance(error, InvalidInputError) else ERROR, str(error))


def _task_states() -> AskStates | None:
    """Return the function that asks Airflow for states of tasks; ``None`` if there is none."""
    runner = sys.modules.get("airflow.sdk.execution_time.task_runner")
    if runner is None or not hasattr(runner, "SUPERVISOR_COMMS"):
        return asks_states(None)
    return asks_states(runner.RuntimeTaskInstance)


_tables = SharedTables()
_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], TableWatch]] = (
    WeakKeyDictionary()
)


async def look_at(conn_id: str, name: str, ask: Callable[[Table], T]) -> T:
    """Ask a table a question, in one of the threads that poll and with their shared clients.

    :param name: the table's URL, or its name below the connection's table root.
    :param ask: asks the table.
    :raises ZeroRenameError: as ``ask``. If the store refused, the connection is read again next
        time.
    """

    def look() -> T:
        table = _tables.table(conn_id, name)
        try:
            return ask(table)
        except StoreRefusedError:
            _tables.forget(conn_id, table)
            raise
        finally:
            table.driver.close()

    return await asyncio.get_running_loop().run_in_executor(_LOOKERS, look)


def watch(conn_id: str, url: str) -> TableWatch:
    """Return the watch of a table in the running event loop."""
    here = _watches.setdefault(asyncio.get_running_loop(), {})
    key = (conn_id, url)
    if key not in here:
        here[key] = TableWatch(conn_id, url, _tables)
    return here[key]
