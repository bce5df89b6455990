"""Inputs of a job: the tables and files that its rows were computed from."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Annotated

from .data_file import DataFile
from .marks import LEFT_OUT, Count, Moment

#: Most partitions of a table that are recorded by name; more are recorded as one digest.
MOST_NAMED = 1_000
#: Stands for a filter that was not kept. It cannot be tested on partitions other than those that it
#: found.
UNREADABLE = ""
#: Most code versions that are recorded for rows that were written again together. Two are enough to
#: show that one of them is not the present one; more are recorded to name them.
_MOST_VERSIONS = 20
#: Row hashes have 64 bits, and so have their sums.
_MODULUS = 2**64


def content_of(files: Collection[DataFile]) -> str:
    """Return a digest of the files' rows; the order of the files does not matter.

    If all jobs that wrote them hashed rows, equal rows have equal digests, in any order, split or
    codec. Otherwise it is a digest of bytes: the same rows in another order have another digest.
    """
    if all(file.content for file in files):
        total = sum(int(file.content, 16) for file in files) % _MODULUS
        return f"rows:{sum(file.rows for file in files)}:{total:016x}"
    # Foreign files have no checksum. Without reading them, only their names and sizes are known.
    lines = sorted(file.checksum or f"{file.size} {file.same_as or file.key}" for file in files)
    return f"bytes:{_digest(lines)}"


def _digest(lines: Iterable[str]) -> str:
    return blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class PartitionRead:
    """The state in which a partition was read.

    :param version: its head's version; 0: it had no head and was read by a listing, so only its
        content shows a change.
    :param content: :func:`content_of` its files.
    """

    partition: str
    version: Count
    content: str


@dataclass(frozen=True)
class TableRead:
    """A read of a table: the question (names, filters, the whole table) and the partitions found.

    :param table: the root, ``s3://bucket/prefix``.
    :param partitions: the partitions that held files, sorted by name; empty if there is a
        ``digest``.
    :param names: partitions that were asked for by name and held no files; with a digest, all that
        were asked for by name.
    :param filters: conditions that chose among all partitions
        (:meth:`.row_filter.RowFilter.encode`); :data:`UNREADABLE` for a condition that was not
        kept.
    :param whole: the whole table was asked for.
    :param digest: digest of the names and contents of more than :data:`MOST_NAMED` partitions,
        recorded instead of ``partitions``; ``more`` is their number.
    """

    table: str
    partitions: tuple[PartitionRead, ...] = ()
    names: Annotated[tuple[str, ...], LEFT_OUT] = ()
    filters: Annotated[tuple[str, ...], LEFT_OUT] = ()
    whole: Annotated[bool, LEFT_OUT] = False
    digest: Annotated[str, LEFT_OUT] = ""
    more: Annotated[Count, LEFT_OUT] = 0

    def over(self, other: TableRead) -> TableRead:
        """Combine two reads of one table; partitions in both have the state of this one."""
        states = {it.partition: it for it in (*other.partitions, *self.partitions)}
        return replace(
            self,
            partitions=tuple(states[name] for name in sorted(states)),
            names=tuple(sorted({*self.names, *other.names})),
            filters=tuple(dict.fromkeys((*self.filters, *other.filters))),
            whole=self.whole or other.whole,
        )

    def stated(self) -> TableRead:
        """Return this read as a decision records it: no name twice, many partitions as a digest."""
        found = {it.partition: it.content for it in self.partitions}
        if len(found) <= MOST_NAMED:
            return replace(self, names=tuple(name for name in self.names if name not in found))
        return replace(self, partitions=(), digest=digest_of(found.items()), more=len(found))


def digest_of(contents: Iterable[tuple[str, str]]) -> str:
    """Return a digest of partitions, given as pairs of name and content."""
    return _digest(f"{name} {content}" for name, content in sorted(contents))


@dataclass(frozen=True)
class FileRead:
    """A foreign file that was read, with its ETag when it was named as an input.

    :param url: ``s3://bucket/key``.
    """

    url: str
    etag: str


@dataclass(frozen=True)
class Inputs:
    """The known inputs of a job's rows. If no tables and files are named, they are not known.

    :param tables: the tables that were read. A table may be there twice if rows of several jobs
        were written again.
    :param files: the foreign files that were read.
    :param partly: the inputs of some of the job's rows are not known.
    :param began: when the job opened, by the store's clock.
    :param code_versions: versions of the programs that made the rows, if they gave any; several
        if rows of several jobs were written again, with ``""`` for rows of unknown version.
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
        """True if it is known what rows of the job were computed from."""
        return bool(self.tables or self.files)

    @staticmethod
    def all_of(inputs: Iterable[Inputs]) -> Inputs:
        """Combine the inputs of several jobs for a job that writes their rows again.

        Two reads of one table are not merged: each is compared with the present state by itself.
        """
        found = tuple(inputs)
        tables = dict.fromkeys(read for it in found for read in it.tables)
        files = dict.fromkeys(read for it in found for read in it.files)
        partly = any(it.partly or not it.tell_reads for it in found)
        versions = sorted({version for it in found for version in it.code_versions or ("",)})
        told = tuple(versions[:_MOST_VERSIONS]) if any(versions) else ()
        return Inputs(tuple(tables), tuple(files), partly, code_versions=told)

    def made_by(self, code_version: str | None) -> Inputs:
        """Return these inputs with the version of the program that computed the rows."""
        return replace(self, code_versions=(code_version or "",))


#: Inputs of a job about which nothing is known.
UNKNOWN_INPUTS = Inputs()
