"""The world of a walk: a store in memory, processes on it, and an oracle that hears each decision.

What goes wrong goes wrong here, request by request; nothing depends on threads, on the host's
clock or on chance.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from walk.oracle import Effect, Oracle, Row, Violation, older
from walk.plan import CRASHES, Operation, Plan, Trouble

from support.memory_store import ManualClock, MemoryDriver, MemoryStore
from zero_rename import Table
from zero_rename.committer import readable_table, write_job
from zero_rename.committer.commit.state.context import Limits
from zero_rename.committer.errors import SnapshotGoneError, StoreRefusedError, StoreUnreachableError
from zero_rename.committer.format.layout import UNPARTITIONED, TableRoot, job_ids_begin
from zero_rename.committer.format.parquet import footers, task_writer
from zero_rename.committer.scan import table_scan
from zero_rename.committer.store import requests as s
from zero_rename.committer.store.copies import CopyFile
from zero_rename.tables import DeltaTable

T = TypeVar("T")
#: The last job's fate as its user is told it by a return value: *committed* or *refused*; ``None``:
#: nothing was said of one job.
Told = str | None
URL = "s3://bucket/wh/flights"
ROOT = TableRoot.parse(URL)
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_SMALL = Limits(decisions_per_head=2, files_per_object=2, heads_besides_index=1)
_READS = (s.Get, s.Head, s.ListObjects, s.ListUploads, s.ListParts, s.CreateUpload, s.UploadPart)
_FILES = (s.PutFile, CopyFile)
_WRITES = (s.Put, s.Delete, s.DeleteMany, s.CompleteUpload, *_FILES)
#: Requests after which one that is late arrives.
_LATE = 7


class Crash(BaseException):
    """The process dies."""


class _AtOnce:
    """A pool that does in the caller's thread what it is given."""

    def __init__(self, workers: int) -> None:
        pass

    def __enter__(self) -> _AtOnce:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, work: Callable[..., T], *sources: Iterable[Any]) -> Iterator[T]:
        return map(work, *sources)

    def shutdown(self, **options: bool) -> None:
        pass


@contextmanager
def in_memory() -> Iterator[None]:
    """Tables are on the driver that they are given as a client, and no thread sends requests: tasks
    finish files one by one, and heartbeats are sent where the plan has one."""
    with (
        mock.patch.object(readable_table, "connect", lambda bucket, client: client),
        mock.patch.object(task_writer, "ThreadPoolExecutor", _AtOnce),
        mock.patch.object(footers, "ThreadPoolExecutor", _AtOnce),
        mock.patch.object(table_scan, "ThreadPoolExecutor", _AtOnce),
        mock.patch.object(write_job, "repeating", return_value=nullcontext()),
    ):
        yield


def value_of(number: int, column: str, change: int = 0) -> int:
    """What a row holds in a column.

    :param change: the number of the operation that changed it last.
    """
    if column == "n":
        return number % 1000 + change * 1000
    return number * 10 + int(column[1:]) + change * 100_000_000


def written(columns: Iterable[str], change: int = 0) -> frozenset[tuple[str, int]]:
    """The columns that a row is written with, as the oracle has them."""
    return frozenset((column, change) for column in columns)


def field_of(column: str, wide: bool = False) -> pa.Field:
    if column == "day":
        return pa.field("day", pa.int32())
    narrow = column == "n" and not wide
    return pa.field(column, pa.int32() if narrow else pa.int64())


def given_of(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Those of some options that an operation has."""
    return {name: options[name] for name in names if name in options}


def columns_of(
    world: World, operation: Operation, table: Table | DeltaTable, *, brings: bool, known: bool
) -> pa.Schema:
    """The columns of a job's rows: the operation's own where it ``brings`` some, or the table's
    where they are ``known``."""
    if known and not brings:
        return table.schema
    names = operation.options["columns"] if brings else ("n",)
    wide = brings and operation.options["wide"]
    last = [field_of("day")] if world.plan.partitioned else []
    return pa.schema([field_of("id"), *(field_of(name, wide) for name in names), *last])


def rows_as_table(rows: dict[str, tuple[Row, ...]], schema: pa.Schema) -> pa.Table:
    """Rows by partition as Arrow data of a schema."""
    every = [(name, number, dict(had)) for name, them in rows.items() for number, had in them]
    columns = {}
    for column in schema.names:
        if column == "id":
            values = [number for _, number, _ in every]
        elif column == "day":
            values = [int(name.removeprefix("day=")) for name, _, _ in every]
        else:
            values = [value_of(number, column, had[column]) for _, number, had in every]
        columns[column] = pa.array(values, schema.field(column).type)
    return pa.table(columns, schema=schema)


class Process:
    """A process, until it dies.

    :param during: the operation that it carries out; how many requests it has ``sent`` for it and
        how many that are ``written``; ``first``: the first request of a trouble that has begun.
    :param hindered: files that it has brought back, whose removal, or a look before it, failed.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.dead = False
        self.during: Operation | None = None
        self.sent = self.written = 0
        self.first: dict[Trouble, int] = {}
        self.jobs: list[str] = []
        self.hindered: set[str] = set()
        self.effect: Callable[[str], Effect] = Effect
        self.driver = MemoryDriver(world.store, self._carry_out, world.clock)
        self.table = self.fresh()

    def fresh(self) -> Table:
        """A table of which this process knows nothing yet."""
        table = Table(URL, client=self.driver)
        limits = _SMALL if self.world.plan.small else Limits()
        table._context = replace(
            table._context,
            limits=limits,
            job_id=self._job_id,
            write_id=self.world.write_id,
            process=lambda: self.name,
        )
        return table

    def _job_id(self) -> str:
        world = self.world
        assert self.during is not None
        first = job_ids_begin(world.clock.now, 10)
        job = f"{first}{self.during.number:08d}{len(self.jobs):08d}"
        self.jobs.append(job)
        world.oracle.effects[job] = self.effect(job)
        return job

    def opened(self, job: str | None) -> None:
        """A job is open: what is decided from now on has come after it."""
        if job is not None:
            self.world.oracle.effects[job].opened = len(self.world.oracle.commits)

    @contextmanager
    def carrying_out(self, operation: Operation) -> Iterator[None]:
        """From its first request on."""
        outer = self.during, self.sent, self.written, self.first, self.jobs, self.effect
        self.during, self.sent, self.written, self.first = operation, 0, 0, {}
        self.jobs, self.effect = [], Effect
        try:
            yield
        finally:
            self.during, self.sent, self.written, self.first, self.jobs, self.effect = outer

    def _carry_out(
        self, request: s.Request[Any], apply: Callable[[s.Request[Any]], object]
    ) -> object:
        if self.dead:
            raise Crash
        if self.during is None:
            return self.world.apply(request, self)
        self.world.deliver()
        self.sent += 1
        writes = isinstance(request, _WRITES)
        self.written += writes
        during, here, number = self.during, self.sent, self.written
        for it in during.beside:
            if not it.after_write and it.at == here:
                self.world.beside(it.operation)
        trouble = next((it for it in during.troubles if self._befalls(it, writes)), None)
        if trouble is None:
            answer = self.world.apply(request, self)
        else:
            answer = self._troubled(trouble, request)
        for it in during.beside:
            if it.after_write and writes and it.at == number:
                self.world.beside(it.operation)
        return answer

    def _befalls(self, trouble: Trouble, writes: bool) -> bool:
        """Whether this request is one of those that the trouble is about."""
        first = trouble.at
        if trouble.writes:
            if writes and self.written == trouble.at:
                self.first[trouble] = self.sent
            first = self.first.get(trouble, self.sent + 1)
        return first <= self.sent < first + trouble.lasts

    def _troubled(self, trouble: Trouble, request: s.Request[Any]) -> object:
        kind = trouble.kind
        if kind in CRASHES:
            if kind == "dies after":
                self.world.apply(request, self)
            elif kind == "dies with it on its way":
                self.world.send_late(request)
            self.dead = True
            raise Crash
        if kind == "Ctrl-C before":
            raise KeyboardInterrupt
        if kind == "Ctrl-C after":
            self.world.apply(request, self)
            raise KeyboardInterrupt
        if isinstance(request, s.Get | s.Delete):
            self.hindered |= {key for key, it in self.world.came_back.items() if it is self}
        return _answer(self, kind, request)


def _answer(process: Process, kind: str, request: s.Request[Any]) -> object:
    """What a driver says in the end where this happens to a process's request."""
    world = process.world
    if kind == "denied":
        if isinstance(request, s.DeleteMany):
            return s.Deleted({key: "AccessDenied" for key, _ in request.items})
        raise StoreRefusedError("The store denied it.", lacks_right=True)
    if isinstance(request, (*_READS, *_FILES)):
        if isinstance(request, (s.CreateUpload, s.UploadPart, *_FILES)) and kind == "lost":
            world.apply(request, process)
        raise StoreUnreachableError("The store did not answer.")
    conditional = isinstance(request, s.Put) and s.is_sent_once(request)
    if kind == "busy":
        if conditional:
            return s.Refused("ConditionalRequestConflict")
        return s.Unknown("the store was busy")
    if kind == "twice":
        answer = world.apply(request, process)
        return world.apply(request, process) if s.is_sent_once(request) else answer
    if kind == "lost":
        world.apply(request, process)
    elif kind == "late" and (s.is_sent_once(request) or isinstance(request, s.AbortUpload)):
        world.send_late(request)
    return s.Unknown("the answer was lost")


@dataclass
class World:
    """Everything that a walk has.

    :param carry_out: carries out an operation; given by the runner.
    :param late: requests on their way, and how many others arrive before each.
    :param open_jobs: jobs that are open, with the process that has each.
    :param quiet: whether nothing goes wrong in the operation that is carried out, nor beside it.
    :param came_back: removed files that a second Complete has brought back, and whose it was;
        ``left``: those whose process could not remove them again.
    :param words: by run, the partitions that a plan has named, whose clear is to come.
    :param by_hand: by run, how often it was cleared by hand.
    """

    plan: Plan
    carry_out: Callable[[World, Operation], None]
    oracle: Oracle = field(default_factory=Oracle)
    clock: ManualClock = field(default_factory=ManualClock)
    processes: dict[int, Process] = field(default_factory=dict)
    late: list[tuple[int, s.Request[Any]]] = field(default_factory=list)
    open_jobs: list = field(default_factory=list)
    came_back: dict[str, Process] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    by_hand: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)
    quiet: bool = False
    was_late: bool = False
    arrived: int = 0
    violation: Violation | None = None

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock, self.plan.behaviour)
        self._writes = 0
        self._names = 0
        self.bare = MemoryDriver(self.store)
        if self.plan.older:
            self._files_before()

    def _files_before(self) -> None:
        names = [self.partition(day) for day in self.plan.older]
        rows = {}
        for place, name in enumerate(dict.fromkeys(names)):
            rows[name] = tuple((900_000 + 10 * place + n, written("n")) for n in range(3))
            schema = pa.schema([field_of("id"), field_of("n")])
            body = io.BytesIO()
            pq.write_table(rows_as_table({name: rows[name]}, schema), body)
            self.store.apply(s.Put(f"{ROOT.partition_prefix(name)}part-0.parquet", body.getvalue()))
        self.oracle.states = [older(rows)]

    def partition(self, day: int) -> str:
        return f"day={day}" if self.plan.partitioned else UNPARTITIONED

    def process(self, number: int) -> Process:
        found = self.processes.get(number)
        if found is None or found.dead:
            self._names += 1
            found = self.begin_process(f"process-{number}-{self._names}")
            self.processes[number] = found
        return found

    @property
    def of_new_tables(self) -> Mapping[str, Any]:
        """Words of jobs that may make the table."""
        return {}

    def has_forgotten(self, job: str) -> bool:
        """Whether nobody can tell any more which job has done a run's work."""
        return False

    def may_be_gone(self, error: SnapshotGoneError) -> bool:
        """Whether a state may be gone though nobody has changed the table meanwhile."""
        return False

    def may_be_unknown(self, error: BaseException) -> bool:
        """Whether nobody may be able to tell what became of a job that nobody disturbed."""
        return False

    def in_order(self) -> AbstractContextManager[None]:
        """Let nothing in the walk depend on chance or the host's clock."""
        return nullcontext()

    def begin_process(self, name: str) -> Process:
        return Process(self, name)

    def is_at_work(self, name: str | None) -> bool:
        """Whether a process is in the midst of an operation."""
        found = (it for it in self.processes.values() if it.name == name and not it.dead)
        return any(it.during is not None for it in found)

    def write_id(self) -> str:
        self._writes += 1
        return f"write-{self._writes:08d}"

    def beside(self, operation: Operation) -> None:
        """Another process does something, now."""
        self.carry_out(self, operation)

    def send_late(self, request: s.Request[Any]) -> None:
        self.was_late = True
        self.late.append((self.arrived + _LATE, request))

    def deliver(self, every: bool = False) -> None:
        """What is due arrives; ``every``: all that is on its way."""
        self.arrived += 1
        due = [request for at, request in self.late if every or at <= self.arrived]
        self.late = [it for it in self.late if not every and it[0] > self.arrived]
        for request in due:
            self.apply(request)

    def apply(self, request: s.Request[Any], process: Process | None = None) -> object:
        """Carry out a process's request in the store; the oracle hears of decisions.

        :param process: none: the request was late.
        """
        back = self._brings_back(request)
        answer = self.store.apply(request)
        if back is not None and process is None:
            self.left.add(back)
        elif back is not None and process is not None:
            self.came_back[back] = process
        try:
            self.hear(request, answer)
        except Violation as found:
            # Whatever the code under test makes of it.
            self.violation = self.violation or found
            raise
        return answer

    def hear(self, request: s.Request[Any], answer: object) -> None:
        """Tell the oracle of a request that has changed what is committed."""
        raise NotImplementedError

    def _brings_back(self, request: s.Request[Any]) -> str | None:
        """The key of a file of the table that a request completes again though it was removed."""
        if not isinstance(request, s.CompleteUpload) or request.key in self.store.objects:
            return None
        again = request.upload_id in self.store.completed
        resurrects = self.store.behaviour.complete_again == "resurrect"
        of_table = not request.key.startswith(ROOT.control_prefix)
        return request.key if again and resurrects and of_table else None

    def ended(self, error: BaseException | None) -> None:
        """An operation has ended: what its process has brought back it has removed again, unless it
        died or was interrupted, or the store did not let it, and it has told so.

        :raises Violation: it left a file without a word.
        """
        for key, process in list(self.came_back.items()):
            if process.during is not None and not process.dead:
                continue
            del self.came_back[key]
            if key in self.store.objects:
                over = process.dead or isinstance(error, KeyboardInterrupt)
                if not over and (error is None or key not in process.hindered):
                    raise Violation(f"{process.name} brought {key} back and left it: {error!r}")
                self.left.add(key)

    @contextmanager
    def carried_out_by(self, other: Process, process: Process) -> Iterator[list[str]]:
        """The operation of ``process`` is ``other``'s inside: that one has the job. Gives the list
        of the operation's jobs."""
        if other is process:
            yield process.jobs
            return
        assert process.during is not None
        with other.carrying_out(process.during):
            yield process.jobs

    def objects(self, prefix: str) -> Collection[str]:
        return self.store.keys(prefix)
