"""Inputs of a run's job: the tables that it was computed from, for whoever submitted it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from ..commit.state.job_state import Committed
from ..format.layout import TableRoot, new_write_id
from ..format.records.codec import decode, encode
from ..format.records.marks import LEFT_OUT
from ..store.requests import Found, Get, Put, Step

#: Partitions of a table that are named; of the others their number is kept.
_MOST_NAMED = 1_000


@dataclass(frozen=True)
class PartitionRead:
    """:param epoch: at which it was read; the smallest, where that was more than once."""

    partition: str
    epoch: int


@dataclass(frozen=True)
class TableRead:
    """A table that an application has read before it committed.

    :param table: the root, ``s3://bucket/prefix``.
    :param partitions: by name, as many as are kept; ``more``: how many others.
    """

    table: str
    partitions: tuple[PartitionRead, ...]
    more: Annotated[int, LEFT_OUT] = 0

    @staticmethod
    def of(table: str, epochs: Mapping[str, int | None]) -> TableRead | None:
        """:param epochs: by partition; 0 or ``None``: it was not there, or counts as not read.
        :return: ``None``: nothing that was there has been read.
        """
        found = sorted((name, epoch) for name, epoch in epochs.items() if epoch)
        if not found:
            return None
        named = tuple(PartitionRead(*it) for it in found[:_MOST_NAMED])
        return TableRead(table, named, len(found) - len(named))


@dataclass(frozen=True)
class JobInputs:
    """The record. Written over by the next job of the same run.

    :param tables: by their roots.
    """

    write_id: str
    once: str
    job: str
    tables: tuple[TableRead, ...]

    def encode(self) -> bytes:
        return encode("inputs", self.write_id, self)

    @staticmethod
    def decode(body: bytes, key: str) -> JobInputs:
        return decode(body, "inputs", key).read(JobInputs)


def tell_inputs(once: str, done: Committed, reads: Iterable[TableRead]) -> Step[None]:
    """Put on record what an application had read when its job was committed, if anything.

    :param once: the run's key.
    """
    tables = tuple(sorted(reads, key=lambda it: it.table))
    if tables:
        inputs = JobInputs(new_write_id(), once, done.job, tables)
        yield from Put(TableRoot.parse(done.table).inputs_key(once), inputs.encode())


def read_inputs(root: TableRoot, once: str, job: str) -> Step[tuple[TableRead, ...]]:
    """What a run's job was computed from, as far as it was told."""
    found = yield from Get(root.inputs_key(once))
    if not isinstance(found, Found):
        return ()
    inputs = JobInputs.decode(found.body, found.key)
    return inputs.tables if inputs.job == job else ()
