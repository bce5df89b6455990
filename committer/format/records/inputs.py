"""Inputs of a job: tables that its rows were computed from, what was asked of them, and files."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Annotated

from .data_file import DataFile
from .marks import LEFT_OUT, Count, Moment

#: Partitions of a table that are named one by one; more have one digest.
MOST_NAMED = 1_000
#: What stands for a filter that cannot be asked about other partitions than those it found.
UNREADABLE = ""
#: Code versions of rows that were written again together. Two are enough to tell that one is not
#: the present one; the others are named.
_MOST_VERSIONS = 20
#: Row hashes are of so many bits, and so are their sums.
_MODULUS = 2**64


def content_of(files: Collection[DataFile]) -> str:
    """What tells the rows of some files from others, in whatever order the files come.

    Where the jobs that wrote them all counted by rows it is the same for the same rows, in any
    order, split or codec. Else it is the bytes': the same rows in another order are others.
    """
    if all(file.content for file in files):
        total = sum(int(file.content, 16) for file in files) % _MODULUS
        return f"rows:{sum(file.rows for file in files)}:{total:016x}"
    # Foreign files have no checksum: their names and sizes are all that is known without reading.
    lines = sorted(file.checksum or f"{file.size} {file.same_as or file.key}" for file in files)
    return f"bytes:{_digest(lines)}"


def _digest(lines: Iterable[str]) -> str:
    return blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class PartitionRead:
    """A partition as it was read.

    :param version: 0: it held what a listing showed, so that its content alone tells.
    :param content: :func:`content_of` its files.
    """

    partition: str
    version: Count
    content: str


@dataclass(frozen=True)
class TableRead:
    """What was asked of a table, and what was there.

    :param table: the root, ``s3://bucket/prefix``.
    :param partitions: those that held files, by name; none where there is a ``digest``.
    :param names: those that were asked for by name, and held none; all of these where there is a
        digest.
    :param filters: conditions that chose among all partitions
        (:meth:`.row_filter.RowFilter.encode`); :data:`UNREADABLE` for one that is not kept.
    :param whole: all of the table was asked for.
    :param digest: of more than :data:`MOST_NAMED` partitions, in the place of their names; ``more``
        is how many they were.
    """

    table: str
    partitions: tuple[PartitionRead, ...] = ()
    names: Annotated[tuple[str, ...], LEFT_OUT] = ()
    filters: Annotated[tuple[str, ...], LEFT_OUT] = ()
    whole: Annotated[bool, LEFT_OUT] = False
    digest: Annotated[str, LEFT_OUT] = ""
    more: Annotated[Count, LEFT_OUT] = 0

    def over(self, other: TableRead) -> TableRead:
        """Both reads of one table; of what both have read, this one's state."""
        states = {it.partition: it for it in (*other.partitions, *self.partitions)}
        return replace(
            self,
            partitions=tuple(states[name] for name in sorted(states)),
            names=tuple(sorted({*self.names, *other.names})),
            filters=tuple(dict.fromkeys((*self.filters, *other.filters))),
            whole=self.whole or other.whole,
        )

    def stated(self) -> TableRead:
        """This read as a decision has it: no name twice, and many partitions as a digest."""
        found = {it.partition: it.content for it in self.partitions}
        if len(found) <= MOST_NAMED:
            return replace(self, names=tuple(name for name in self.names if name not in found))
        return replace(self, partitions=(), digest=digest_of(found.items()), more=len(found))


def digest_of(contents: Iterable[tuple[str, str]]) -> str:
    """What tells some partitions and their contents from others."""
    return _digest(f"{name} {content}" for name, content in sorted(contents))


@dataclass(frozen=True)
class FileRead:
    """An object that no table of this package has: ``s3://bucket/key``, as it was when stated."""

    url: str
    etag: str


@dataclass(frozen=True)
class Inputs:
    """What a job's rows were computed from, as far as it was told. Nothing: it is not known.

    :param tables: one of them may be there twice, where rows of several jobs were written again.
    :param files: foreign ones.
    :param partly: rows are among the job's of which it is not known.
    :param began: when the job opened, by the store's clock.
    :param code_versions: of the programs that made the rows, as far as they said any; several
        where rows of several jobs were written again, ``""`` for rows of which it is not known.
    """

    tables: Annotated[tuple[TableRead, ...], LEFT_OUT] = ()
    files: Annotated[tuple[FileRead, ...], LEFT_OUT] = ()
    partly: Annotated[bool, LEFT_OUT] = False
    began: Annotated[Moment | None, LEFT_OUT] = None
    code_versions: Annotated[tuple[str, ...], LEFT_OUT] = ()

    def __bool__(self) -> bool:
        return bool(self.tell_reads or self.code_versions)

    @property
    def tell_reads(self) -> bool:
        """Whether it is known what the rows were computed from."""
        return bool(self.tables or self.files)

    @staticmethod
    def all_of(inputs: Iterable[Inputs]) -> Inputs:
        """Those of several jobs, whose rows one writes again. None is made one with another: each
        is held by itself against what is there."""
        found = tuple(inputs)
        tables = dict.fromkeys(read for it in found for read in it.tables)
        files = dict.fromkeys(read for it in found for read in it.files)
        partly = any(it.partly or not it.tell_reads for it in found)
        versions = sorted({version for it in found for version in it.code_versions or ("",)})
        told = tuple(versions[:_MOST_VERSIONS]) if any(versions) else ()
        return Inputs(tuple(tables), tuple(files), partly, code_versions=told)

    def made_by(self, code_version: str | None) -> Inputs:
        """The same, of rows that a program of this version computed."""
        return replace(self, code_versions=(code_version or "",))


#: Of a job of which nothing is known.
UNKNOWN_INPUTS = Inputs()
