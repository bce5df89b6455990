"""Reads of tables, recorded as inputs of later jobs; and inputs that a program states.

Nothing shows a writer which reads its rows come from. So a job counts everything that its process
has read before it commits, in any thread; for each partition, the state that was read first. Once a
job has ended, a partition that is read again counts with its new state. A partition that is not
read again still counts, since a second job may be computed from the same rows as the first one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from ..commit.snapshot import Snapshot
from ..errors import InvalidInputError
from ..format.records.inputs import (
    UNKNOWN_INPUTS,
    UNREADABLE,
    FileRead,
    Inputs,
    PartitionRead,
    TableRead,
    content_of,
)
from ..format.records.marks import LEFT_OUT
from ..store.driver import BotoDriver
from ..store.requests import Absent, Head
from ..store.s3_urls import SCHEME
from .partition_condition import PartitionCondition
from .table_scan import TableScan

#: Tables that are recorded for one process, at the most. A process that reads more serves many
#: jobs, and it is unknown which of these tables each job is computed from. So its jobs record no
#: inputs, unless the program states them.
_MOST_TABLES = 100
#: Parts of a URL that are credentials and not the name of a file.
_SECRET = re.compile(r"[?&](X-Amz-|AWSAccessKeyId|Signature=|sig=|token=)", re.IGNORECASE)


def read_of(state: Snapshot) -> TableRead:
    """Build the record of a state as an input of a job."""
    asked = state.asked
    names: Collection[str] = ()
    filters: tuple[str, ...] = ()
    if isinstance(asked, PartitionCondition):
        names = asked.named or ()
        filters = () if asked.named is not None else (asked.encode() or UNREADABLE,)
    elif isinstance(asked, list | tuple | set | frozenset):
        names = asked
    elif asked is not None:
        filters = (UNREADABLE,)
    found = tuple(
        PartitionRead(name, state.versions.get(name, 0), content_of(files))
        for name, files in sorted(state.by_partition().items())
    )
    return TableRead(state.root.url, found, tuple(sorted(names)), filters, asked is None)


@dataclass(frozen=True)
class NotedRead:
    """Reads of one table.

    :param since: since the last job has ended; ``before``: before that.
    """

    since: Annotated[TableRead | None, LEFT_OUT] = None
    before: Annotated[TableRead | None, LEFT_OUT] = None

    @property
    def all(self) -> TableRead | None:
        if self.since is None or self.before is None:
            return self.since or self.before
        return self.since.over(self.before)

    def read(self, read: TableRead) -> NotedRead:
        return replace(self, since=read if self.since is None else self.since.over(read))


@dataclass(frozen=True)
class ReadLog:
    """Reads of a process, or of a Spark application.

    :param tables: by their roots.
    :param too_many: there are more than can be recorded.
    :param partly: rows of single jobs were read since the last job has ended. It cannot be found
        out when such rows are stale. ``was_partly``: the same, before that.
    """

    tables: Mapping[str, NotedRead] = field(default_factory=dict)
    too_many: Annotated[bool, LEFT_OUT] = False
    partly: Annotated[bool, LEFT_OUT] = False
    was_partly: Annotated[bool, LEFT_OUT] = False

    def read_state(self, state: Snapshot) -> ReadLog:
        """Return the log with one more read: of a state, or of the rows of one job."""
        return replace(self, partly=True) if state.of_job else self.read(read_of(state))

    def read(self, read: TableRead) -> ReadLog:
        """Return the log with one more read of a table."""
        if self.too_many or len(self.tables.keys() | {read.table}) > _MOST_TABLES:
            return ReadLog(too_many=True)
        noted = self.tables.get(read.table, NotedRead()).read(read)
        return replace(self, tables={**self.tables, read.table: noted})

    def ended(self) -> ReadLog:
        """Return the log after a job has ended, by commit or abort."""
        noted = {n: NotedRead(None, it.all) for n, it in self.tables.items()}
        before = self.was_partly or self.partly
        return replace(self, tables=noted, partly=False, was_partly=before)

    def since(self) -> ReadLog:
        """Return the log with only the reads since the last job has ended."""
        noted = self.tables.items()
        tables = {n: NotedRead(it.since) for n, it in noted if it.since}
        return replace(self, tables=tables, was_partly=False)

    def beside(self, other: ReadLog) -> ReadLog:
        """Return a log with the reads of both logs."""
        both = self
        for noted in other.tables.values():
            both = both.read(noted.all) if noted.all is not None else both
        return replace(
            both,
            too_many=both.too_many or other.too_many,
            partly=self.partly or other.partly,
            was_partly=self.was_partly or other.was_partly,
        )

    @property
    def inputs(self) -> Inputs:
        """Inputs of a job that commits now."""
        if self.too_many:
            return UNKNOWN_INPUTS
        reads = (self.tables[name].all for name in sorted(self.tables))
        stated = tuple(read.stated() for read in reads if read is not None)
        return Inputs(stated, partly=self.partly or self.was_partly)


_here = ReadLog()
_lock = threading.Lock()


def note_read(state: Snapshot) -> Snapshot:
    """Record a snapshot as an input of later jobs of this process, and return it."""
    global _here
    with _lock:
        _here = _here.read_state(state)
    return state


def note_end() -> None:
    """Record that a job of this process has ended."""
    global _here
    with _lock:
        _here = _here.ended()


def noted() -> ReadLog:
    """Return the reads of this process."""
    return _here


def forget_reads(*, before_last_job: bool = False) -> None:
    """Forget the reads of this process so far; its later jobs do not record them.

    :param before_last_job: forget only the reads from before its last job ended.
    """
    global _here
    with _lock:
        _here = _here.since() if before_last_job else ReadLog()


def stated_inputs(driver: BotoDriver, inputs: Iterable[Snapshot | TableScan | str]) -> Inputs:
    """Return the inputs that a program states for a job: a request for each foreign file.

    :param inputs: states of tables that rows are computed from, and ``s3://bucket/key`` of files.
        Rows of one job are not a state: the record then says that it is not complete.
    :raises InvalidInputError: one is none of these, a file is not there, or its URL contains a
        secret.
    """
    tables: dict[str, TableRead] = {}
    files: list[FileRead] = []
    partly = False
    for it in inputs:
        if isinstance(it, str):
            files.append(_file(driver, it))
            continue
        state = it if isinstance(it, Snapshot) else it.snapshot
        if state.of_job:
            partly = True  # Rows of one job cannot be compared with a later state.
            continue
        read = read_of(state)
        known = tables.get(read.table)
        tables[read.table] = read if known is None else known.over(read)
    stated = tuple(tables[name].stated() for name in sorted(tables))
    return Inputs(stated, tuple(sorted(files, key=lambda file: file.url)), partly)


def _file(driver: BotoDriver, url: str) -> FileRead:
    bucket, key = place_of(url)
    found = BotoDriver(bucket, driver.clients).run(Head(key))
    if isinstance(found, Absent):
        raise InvalidInputError(
            f"The input {url} is not there; nothing was written.",
            remedy="Name an object that is there, or a state of a table: inputs=[table.snapshot()]",
        )
    return FileRead(f"s3://{bucket}/{key}", found.etag)


def place_of(url: str) -> tuple[str, str]:
    """Return bucket and key of a foreign file.

    :raises InvalidInputError: it is not such a URL, or holds a password or signature. The error
        does not repeat the URL, since it may be logged.
    """
    found = re.fullmatch(rf"{SCHEME}([A-Za-z0-9][A-Za-z0-9._-]*)/([^/].*)", url)
    if found is None or _SECRET.search(url):
        raise InvalidInputError(
            "An input is s3://bucket/key, without a user, a password or a signature; this one is "
            "not, and is kept nowhere. Nothing was written.",
            remedy="Name the object alone; credentials come from boto3's chain.",
        )
    return found[1], found[2]
