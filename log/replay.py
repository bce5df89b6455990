"""State of a table, and its replay: a state and the entries after it give the next state.

=================  ========================  =================================================
member             known from                unknown
=================  ========================  =================================================
protocol, columns  any opening               never
transactions       any opening               older ones, if ``N.crc`` names only the newest
files              checkpoint or small crc   ``None`` after an opening that needs none; those of
                                             other partitions, if only some were read
tombstones         checkpoint and entries    ``None`` after an opening by ``N.crc``
=================  ========================  =================================================

The entries must follow the state without a gap; a gap is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..committer.errors import RecordDamagedError
from .actions import (
    FORGOTTEN,
    Action,
    AddFile,
    AppTransaction,
    DomainMetadata,
    LogMetadata,
    LogProtocol,
    RemoveFile,
)
from .entries import LogEntry
from .partitions import Partition, partition_of


@dataclass(frozen=True)
class LogState:
    """A table after one version. With ``version`` -1 the table does not exist.

    :param transactions: by application, the newest last.
    :param files: the live files by path; ``None``: not read.
    :param removed: the tombstones by path; ``None``: not read.
    :param count: the number of live files; ``size``: their bytes; ``None``: unknown.
    :param etags: the ETags of the entries since ``checkpoint``, by version.
    :param checkpoint: the version of the newest checkpoint; -1: there is none.
    :param all_transactions: ``False`` if only the newest were read.
    :param all_files: ``False`` if only the files of chosen partitions were read, and perhaps some
        of others.
    :param vectors: paths of live files with a deletion vector, which cannot be read here.
    """

    version: int = -1
    protocol: LogProtocol | None = None
    metadata: LogMetadata | None = None
    transactions: Mapping[str, AppTransaction] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)
    files: Mapping[str, AddFile] | None = field(default_factory=dict)
    removed: Mapping[str, RemoveFile] | None = field(default_factory=dict)
    count: int | None = 0
    size: int | None = 0
    etags: Mapping[int, str] = field(default_factory=dict)
    checkpoint: int = -1
    all_transactions: bool = True
    all_files: bool = True
    vectors: frozenset[str] = frozenset()

    @property
    def exists(self) -> bool:
        return self.version >= 0

    @property
    def table_id(self) -> str | None:
        return self.metadata.id if self.metadata else None

    def property_of(self, name: str, other: str = "") -> str:
        return self.metadata.properties.get(name, other) if self.metadata else other

    @property
    def live(self) -> Mapping[str, AddFile]:
        """The live files by path. The state must have been read with its files."""
        if self.files is None:
            raise ValueError("the state was opened without its files")
        return self.files

    def partition(self, file: AddFile | RemoveFile) -> Partition | None:
        """Return the partition of a file; ``None``: its tombstone does not name it."""
        values = file.values
        if values is None and self.files is not None and file.path in self.files:
            values = self.files[file.path].values
        if values is None or self.metadata is None:
            return None
        return partition_of(values, self.metadata)

    def has_columns_of(self, partition: Partition) -> bool:
        """Return whether a partition has as many values as the table has partition columns."""
        return self.metadata is None or len(partition) == len(self.metadata.partition_columns)

    def files_of(self, partitions: frozenset[Partition]) -> list[AddFile]:
        return [it for it in self.live.values() if self.partition(it) in partitions]


class Replay:
    """A state under construction: it copies the former state once, for any number of entries."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._transactions = dict(state.transactions)
        self._domains = dict(state.domains)
        self._files = None if state.files is None else dict(state.files)
        self._all_files = state.files is not None and state.all_files
        self._removed = None if state.removed is None else dict(state.removed)
        self._protocol, self._metadata = state.protocol, state.metadata
        self._count, self._size = state.count, state.size
        self._vectors = set(state.vectors)

    def apply(self, actions: Iterable[Action], known: bool = False) -> None:
        """Apply the actions of one entry or checkpoint. Removes come first, so the order of the
        actions does not matter.

        :param known: this package wrote the entry, so the files that it removes were live, and
            those that it adds were not. Otherwise only the files of the state show this.
        """
        actions = tuple(actions)
        for action in actions:
            if isinstance(action, RemoveFile):
                self._remove(action, known)
        for action in actions:
            match action:
                case AddFile():
                    self._add(action, known)
                case AppTransaction():
                    self._transactions.pop(action.app, None)  # So that the newest come last.
                    self._transactions[action.app] = action
                case DomainMetadata(removed=True):
                    self._domains.pop(action.domain, None)
                case DomainMetadata():
                    self._domains[action.domain] = action
                case LogProtocol():
                    self._protocol = action
                case LogMetadata():
                    self._metadata = action

    def _add(self, action: AddFile, known: bool) -> None:
        before = None if self._files is None else self._files.get(action.path)
        if self._files is not None:
            self._files[action.path] = action
        if action.vector is None:
            self._vectors.discard(action.path)
        else:
            self._vectors.add(action.path)
        if self._removed is not None:
            self._removed.pop(action.path, None)
        self._count_file(+1, action.size)
        if before is not None:
            self._count_file(-1, before.size)
        elif not (self._all_files or known or action.changes_data):
            self._count = self._size = None  # It may be an update of a file that is live already.

    def _remove(self, action: RemoveFile, known: bool) -> None:
        self._vectors.discard(action.path)
        if self._removed is not None:
            self._removed[action.path] = action
        before = None if self._files is None else self._files.pop(action.path, None)
        if before is not None:
            self._count_file(-1, before.size)
        elif self._all_files or (known and action.removed_at == FORGOTTEN):
            return
        elif known and action.size is not None:
            self._count_file(-1, action.size)
        else:
            self._count = self._size = None

    def _count_file(self, files: int, size: int) -> None:
        if self._count is not None and self._size is not None:
            self._count += files
            self._size += files * size

    def end(self, version: int, etags: Mapping[int, str], checkpoint: int) -> LogState:
        return replace(
            self._state,
            version=version,
            protocol=self._protocol,
            metadata=self._metadata,
            transactions=self._transactions,
            domains=self._domains,
            files=self._files,
            removed=self._removed,
            count=self._count,
            size=self._size,
            etags=etags,
            checkpoint=checkpoint,
            vectors=frozenset(self._vectors),
        )


def replay(state: LogState, entries: Iterable[LogEntry]) -> LogState:
    """Return the state after the entries that follow it.

    :raises RecordDamagedError: an entry is missing between them.
    """
    at, etags, work = state.version, dict(state.etags), Replay(state)
    for entry in entries:
        if entry.version != at + 1:
            raise log_hole(at + 1)
        work.apply(entry.actions, known=entry.job is not None)
        at, etags[entry.version] = entry.version, entry.etag
    ended = work.end(at, etags, state.checkpoint)
    if ended.exists and (ended.protocol is None or ended.metadata is None):
        raise RecordDamagedError(
            "The log's first entries hold no protocol or no metaData action. Nothing was read.",
            remedy="Restore the log's first entries from a version or a backup of the bucket.",
        )
    return ended


def log_hole(version: int) -> RecordDamagedError:
    return RecordDamagedError(
        f"Entry {version} of the log is missing, and no checkpoint replaces it. Nothing was read.",
        field=str(version),
        remedy="Restore the entry from a version or a backup of the bucket.",
    )
