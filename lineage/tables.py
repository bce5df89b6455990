"""Tables as they are now, each looked at once: their partitions, contents and decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..committer.commit.snapshot import Snapshot
from ..committer.commit.state.decide import Decided
from ..committer.errors import TableNotFoundError
from ..committer.format.parquet.row_filter import RowFilter
from ..committer.format.records.inputs import UNREADABLE, TableRead, content_of
from ..committer.readable_table import ReadableTable
from ..committer.scan.partition_condition import PartitionCondition
from ..committer.scan.reads import place_of
from ..committer.store.driver import connect
from ..committer.store.requests import Absent, Head

#: A partition of a table, by the table's root.
Place = tuple[str, str]


class CannotTellError(Exception):
    """What a job asked for cannot be asked again. The message says why."""


@dataclass(frozen=True)
class TableNow:
    """One state of a table.

    :param keys_lost: of files that it names and that are not there, where somebody has looked.
    """

    url: str
    state: Snapshot
    keys_lost: frozenset[str] = frozenset()

    @cached_property
    def contents(self) -> dict[str, str]:
        """By partition that holds files."""
        return {name: content_of(files) for name, files in self.state.by_partition().items()}

    @cached_property
    def held(self) -> dict[str, frozenset[str]]:
        """By partition, the jobs whose files it holds; ``""`` for files that no job wrote."""
        by = self.state.by_partition()
        return {name: frozenset(file.job for file in files) for name, files in by.items()}

    @cached_property
    def lost(self) -> dict[Place, tuple[str, ...]]:
        """Keys of files that are named and not there, by partition and job."""
        found: dict[Place, tuple[str, ...]] = {}
        for file in self.state.files if self.keys_lost else ():
            if file.key in self.keys_lost:
                place = file.partition, file.job
                found[place] = (*found.get(place, ()), file.key)
        return found

    def selected(self, read: TableRead) -> frozenset[str]:
        """The partitions that what was asked for selects now, of those that hold files.

        :raises CannotTellError: it cannot be asked again.
        """
        if read.whole:
            return frozenset(self.contents)
        wanted = {*read.names, *(it.partition for it in read.partitions)} & self.contents.keys()
        for text in read.filters:
            condition = self._condition(text)
            wanted |= {name for name in self.contents if name in condition}
        return frozenset(wanted)

    def _condition(self, text: str) -> PartitionCondition:
        if text == UNREADABLE:
            raise CannotTellError(f"{self.url} was read by a filter that could not be kept")
        schema = self.state.schema
        try:
            row_filter = RowFilter.decode(text)
        except ValueError as error:
            raise CannotTellError(f"the filter that {self.url} was read by {error}") from error
        gone = sorted(set(row_filter.schema.names) - set(schema.names))
        if gone:
            raise CannotTellError(
                f"{self.url} was read by a filter on {', '.join(gone)}, which it has no more"
            )
        return PartitionCondition(row_filter, schema, self.state.partition_by, None)


class KnownTables:
    """Tables, each as it was when it was asked for first.

    :param client: as of :class:`.table.Table`.
    :param with_files: look, too, which data files are there: a listing of each table.
    """

    def __init__(self, client: Any = None, with_files: bool = False) -> None:
        self._client = client
        self._with_files = with_files
        self._tables: dict[str, TableNow | None] = {}
        self._decisions: dict[Place, Decided | None] = {}
        self._etags: dict[str, str | None] = {}

    def table(self, url: str) -> TableNow | None:
        """``None``: there is none any more."""
        if url not in self._tables:
            self._tables[url] = self._look(url)
        return self._tables[url]

    def _look(self, url: str) -> TableNow | None:
        table = ReadableTable(url, self._client)
        try:
            state = table.state()
        except TableNotFoundError:
            return None
        if not self._with_files:
            return TableNow(url, state)
        named = {file.key for file in state.files}
        missing = named - table.keys_there(named)
        if missing:
            # A replace between the two looks removes what it no longer names.
            state = table.state()
            missing &= {file.key for file in state.files}
        return TableNow(url, state, frozenset(missing))

    def decisions(self, url: str, jobs: Iterable[str]) -> dict[str, Decided | None]:
        """The decisions of jobs: a request for each that was not asked for before."""
        wanted = set(jobs) - {""}
        new = {job for job in wanted if (url, job) not in self._decisions}
        if new:
            found = ReadableTable(url, self._client).decisions(new)
            self._decisions |= {(url, job): decided for job, decided in found.items()}
        return {job: self._decisions[url, job] for job in wanted}

    def etag(self, url: str) -> str | None:
        """Of a foreign file; ``None``: it is gone."""
        if url not in self._etags:
            bucket, key = place_of(url)
            found = connect(bucket, self._client).run(Head(key))
            self._etags[url] = None if isinstance(found, Absent) else found.etag
        return self._etags[url]
