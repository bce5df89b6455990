"""Tables in their present state, each read once: their partitions, contents and jobs' records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from ..committer.commit.snapshot import Snapshot
from ..committer.errors import StoreRefusedError, TableNotFoundError
from ..committer.format.parquet.reader import partition_constants
from ..committer.format.parquet.row_filter import RowFilter
from ..committer.format.records.inputs import UNREADABLE, TableRead, content_of, digest_of
from ..committer.format.schema.other_formats import DELTA, OtherFormatError
from ..committer.overview.job_record import JobRecord, record_of, with_runs
from ..committer.readable_table import ReadableTable
from ..committer.scan.partition_condition import PartitionCondition
from ..committer.scan.reads import place_of
from ..committer.store.driver import connect
from ..committer.store.fast_root import is_fast
from ..committer.store.requests import Head, etag_of
from ..tables import DeltaTable

#: Name of a column that is added to those of a table, none of which can have this name.
_NAME = ""
#: A partition with its table's root; or a job with it.
Place = tuple[str, str]


class CannotTellError(Exception):
    """A job's filter cannot be applied to its input again. The message says why."""


@dataclass(frozen=True)
class TableNow:
    """One state of a table.

    :param keys_lost: keys of its files that are missing; empty if nothing has checked that.
    """

    url: str
    state: Snapshot
    keys_lost: frozenset[str] = frozenset()

    @cached_property
    def contents(self) -> dict[str, str]:
        """Digest of the rows of each partition that holds files, by partition."""
        return {name: content_of(files) for name, files in self.state.by_partition().items()}

    @cached_property
    def held(self) -> dict[str, frozenset[str]]:
        """The jobs whose files a partition holds, by partition; ``""``: files that no job wrote."""
        by = self.state.by_partition()
        return {name: frozenset(file.job for file in files) for name, files in by.items()}

    @cached_property
    def fast(self) -> frozenset[Place]:
        """Pairs of a partition and a job that has files there in a fast root only."""
        return frozenset((it.partition, it.job) for it in self.state.files if is_fast(it.key))

    @cached_property
    def holding(self) -> dict[str, list[str]]:
        """The partitions that hold files of a job, by job."""
        found: dict[str, list[str]] = defaultdict(list)
        for name, jobs in self.held.items():
            for job in jobs:
                found[job].append(name)
        return dict(found)

    @cached_property
    def lost(self) -> dict[Place, tuple[str, ...]]:
        """Keys of missing files, by partition and job."""
        found: dict[Place, tuple[str, ...]] = {}
        for file in self.state.files if self.keys_lost else ():
            if file.key in self.keys_lost:
                place = file.partition, file.job
                found[place] = (*found.get(place, ()), file.key)
        return found

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.contents)

    @cached_property
    def _values(self) -> pa.RecordBatch:
        """The column values of each partition that holds files, and after these its name.

        :raises DamagedError: the name of a partition does not fit the table.
        """
        schema, by = self.state.schema, self.state.partition_by
        names = sorted(self.contents)
        constants = [partition_constants(name, name, schema, by) for name in names]
        columns = {
            column: pa.array([it[column].as_py() for it in constants], schema.field(column).type)
            for column in by
        }
        return pa.record_batch([*columns.values(), pa.array(names)], [*columns, _NAME])

    @cached_property
    def _kept(self) -> dict[str, frozenset[str]]:
        """The partitions that a filter selects, by the filter's text, once it was applied."""
        return {}

    @cached_property
    def _digests(self) -> dict[frozenset[str], str]:
        return {}

    def digest(self, selected: frozenset[str]) -> str:
        """Return the digest of partitions and their contents, by which they are compared."""
        if selected not in self._digests:
            self._digests[selected] = digest_of((it, self.contents[it]) for it in selected)
        return self._digests[selected]

    def selected(self, read: TableRead) -> frozenset[str]:
        """Return the partitions that a job would read if it asked for its input now.

        :raises CannotTellError: its filter cannot be applied again.
        """
        if read.whole:
            return self._names
        wanted = {*read.names, *(it.partition for it in read.partitions)} & self.contents.keys()
        for text in read.filters:
            if text not in self._kept:
                self._kept[text] = self._selected_by(text)
            wanted |= self._kept[text]
        return frozenset(wanted)

    def _has_none(self, column: str) -> bool:
        """Return whether a partition has null or NaN in a partition column."""
        return any(it is None or it != it for it in self._values[column].to_pylist())

    def _selected_by(self, text: str) -> frozenset[str]:
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
        asked_for = [it for it in self.state.partition_by if it in row_filter.schema.names]
        if row_filter.is_unsure and any(map(self._has_none, asked_for)):
            raise CannotTellError(
                f"the filter that {self.url} was read by tests for one of several values, and "
                "partitions have null or NaN there, for which its record does not hold"
            )
        if not row_filter.is_about(self.state.partition_by):
            condition = PartitionCondition(row_filter, schema, self.state.partition_by, None)
            return frozenset(name for name in self.contents if name in condition)
        # All partitions at once: a thousand jobs may have a filter each.
        asked = self._values.select([*row_filter.schema.names, _NAME])
        try:
            return frozenset(row_filter.keep(asked)[_NAME].to_pylist())
        except (pa.ArrowException, TypeError) as error:
            raise CannotTellError(
                f"the filter that {self.url} was read by fits its columns no more"
            ) from error


class KnownTables:
    """Tables of either layout, each in the state in which it was first asked for.

    :param client: as for :class:`.table.Table`.
    :param with_files: check also which data files are there, by a listing of each table.
    """

    def __init__(self, client: Any = None, with_files: bool = False) -> None:
        self._client = client
        self._with_files = with_files
        self._tables: dict[str, TableNow | None] = {}
        self._opened: dict[str, ReadableTable | DeltaTable] = {}
        self._records: dict[Place, JobRecord | None] = {}
        self._etags: dict[str, str | None] = {}

    def table(self, url: str) -> TableNow | None:
        """Return the state of a table; ``None``: it does not exist, or no longer."""
        if url not in self._tables:
            try:
                self._tables[url] = self._look(url)
            except TableNotFoundError:
                self._tables[url] = None
        return self._tables[url]

    def input_table(self, url: str) -> TableNow | None:
        """Return the state of a table that a job has read; ``None`` also if its bucket no longer
        exists."""
        try:
            return self.table(url)
        except StoreRefusedError as error:
            if not error.no_bucket:
                raise
        self._tables[url] = None
        return None

    def _look(self, url: str) -> TableNow:
        state = self._open(url)
        if not self._with_files:
            return TableNow(url, state)
        table, named = self._opened[url], {file.key for file in state.files}
        missing = named - table.keys_there()
        if missing:
            # A replace between the read of the state and the listing removes files that the table
            # no longer names.
            state = table.state()
            missing &= {file.key for file in state.files}
        return TableNow(url, state, frozenset(missing))

    def _open(self, url: str) -> Snapshot:
        """Open a table of either layout and return its state."""
        self._opened[url] = table = ReadableTable(url, self._client)
        try:
            return table.state()
        except OtherFormatError as error:
            if error.format_name != DELTA:
                raise
        self._opened[url] = delta = DeltaTable(url, self._client)
        return delta.state()

    def records(self, url: str, jobs: Iterable[str]) -> dict[str, JobRecord | None]:
        """Return the records of jobs, by a request for each that was not asked for before."""
        wanted = set(jobs) - {""}
        new = {job for job in wanted if (url, job) not in self._records}
        if new:
            found = {**dict.fromkeys(new), **self._read_records(url, new)}
            self._records |= {(url, job): record for job, record in found.items()}
        return {job: self._records[url, job] for job in wanted}

    def _read_records(self, url: str, jobs: Iterable[str]) -> Mapping[str, JobRecord | None]:
        table, now = self._opened[url], self._tables[url]
        if isinstance(table, DeltaTable):
            assert now is not None
            return table.job_records(jobs, now.state)
        found: dict[str, JobRecord] = {}
        wanted = set(jobs)
        while new := wanted - found.keys():
            read = {
                job: record_of(it) for job, it in table.decisions(new).items() if it is not None
            }
            found |= read
            # A job that was restricted to some partitions belongs to its run, with the run's job
            # before it, whose record is read, too.
            wanted = {it.narrows for it in read.values() if it.narrows is not None}
        return with_runs(found)

    def stored_name(self, url: str, partition: str) -> str:
        """Return the name by which a table stores a partition: ``day=01`` of a number is ``day=1``.

        :raises InvalidInputError: the table cannot have such a partition.
        """
        (name,) = self._opened[url].stored_names([partition])
        return name

    def etag(self, url: str) -> str | None:
        """Return the ETag of a foreign file; ``None``: it no longer exists."""
        if url not in self._etags:
            bucket, key = place_of(url)
            try:
                self._etags[url] = etag_of(connect(bucket, self._client).run(Head(key)))
            except StoreRefusedError as error:
                if not error.no_bucket:
                    raise
                self._etags[url] = None
        return self._etags[url]
