"""Reading a table's state through its heads: files of one state, several partitions as one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pyarrow as pa

from ..errors import StoreRefusedError, TableNotFoundError, UnfinishedCommitError
from ..job_spec import Coordination
from ..layout import TableRoot
from ..read_base import ReadBase
from ..records.data_file import DataFile
from ..records.head import HeadState
from ..records.table_record import TableRecord
from ..s3.requests import Absent, All, Get, Step, Wait
from ..state.context import Context
from ..state.decide import read_decision
from ..state.heads import ListedHead, list_heads, read_head
from ..state.partition_files import assemble, read_decisions, read_manifest
from .apply import finish
from .uncoordinated import list_files

_ROUNDS = 60
_PAUSE = 0.5


@dataclass(frozen=True)
class Snapshot:
    """One consistent state of a table, fixed when it was read.

    :param files: all files of the partitions asked for, by partition and age.
    :param epochs: epoch by partition; empty for a table of coordination *none*, whose files are
        those that a listing shows.
    :param asked: the partitions asked for; ``None``: all.
    """

    root: TableRoot
    schema: pa.Schema
    partition_by: tuple[str, ...]
    files: tuple[DataFile, ...]
    epochs: dict[str, int]
    asked: Collection[str] | None = None

    @property
    def base(self) -> ReadBase:
        """What a job has read that computes its rows from this state."""
        # A condition for partitions names those that it was given by name, if any.
        epochs = {**dict.fromkeys(self.asked or (), 0), **self.epochs}
        return ReadBase(self.root.url, epochs, whole=self.asked is None)


def read_table(context: Context) -> Step[TableRecord]:
    """A table's record.

    :raises TableNotFoundError: there is none.
    """
    found = yield Get(context.root.table_key)
    if isinstance(found, Absent):
        raise TableNotFoundError(
            "There is no zero_rename table here.",
            table=context.root.url,
            key=context.root.table_key,
            remedy="Check the root; a first write makes the table.",
        )
    return TableRecord.decode(found.body, found.key)


def take_snapshot(context: Context, partitions: Collection[str] | None = None) -> Step[Snapshot]:
    """Read one state of several partitions.

    LIST the heads, read them and the decisions of claiming jobs, LIST again: accepted when the
    ETags are equal and no claim is a decided commit. Such a commit is applied first, or waited
    for where this process may not write.

    :param partitions: Hive-escaped partition paths; ``None`` for all.
    :raises TableNotFoundError: no such table.
    :raises UnfinishedCommitError: a committed job could not be applied and its owner does not
        finish either.
    """
    table = yield from read_table(context)
    if table.coordination is Coordination.NONE:
        files = yield from list_files(context, table.partition_by, partitions)
        return Snapshot(context.root, table.schema, table.partition_by, files, {}, partitions)
    context = replace(context, facts=table.facts)
    listed = yield from list_heads(context)
    for _ in range(_ROUNDS):
        wanted = _wanted(listed, partitions)
        states = yield All(tuple(read_head(context, head.slot) for head in wanted.values()))
        settled = yield from _settle_claims(context, states)
        again = yield from list_heads(context)
        same = _etags(_wanted(again, partitions)) == {s.slot.name: s.etag for s in states}
        if settled and same:
            return (yield from _snapshot(context, table, states, partitions))
        listed = again
    raise UnfinishedCommitError(
        f"The table did not hold still for {_ROUNDS} looks, or a committed job is not applied.",
        table=context.root.url,
        remedy=f"Finish what is open: zero-rename recover {context.root.url}",
    )


def _wanted(
    listed: dict[str, ListedHead], partitions: Collection[str] | None
) -> dict[str, ListedHead]:
    if partitions is None:
        return listed
    return {name: head for name, head in listed.items() if name in partitions}


def _etags(listed: dict[str, ListedHead]) -> dict[str, str | None]:
    return {name: head.etag for name, head in listed.items()}


def _settle_claims(context: Context, states: list[HeadState]) -> Step[bool]:
    """Apply the decided commits among the claims; ``False`` if there were any."""
    jobs = sorted({state.head.claim for state in states if state.head.claim is not None})
    decisions = yield All(tuple(read_decision(context, job) for job in jobs))
    commits = [decided for decided in decisions if decided and decided.decision.is_commit]
    for decided in commits:
        try:
            yield from finish(context, decided)
        except StoreRefusedError:
            yield Wait(_PAUSE)  # A reader without the right to write waits for the owner.
    return not commits


def _snapshot(
    context: Context,
    table: TableRecord,
    states: list[HeadState],
    asked: Collection[str] | None,
) -> Step[Snapshot]:
    named = {job for state in states for job in state.head.decisions}
    folded, decisions = yield All(
        (
            _manifests(context, states),
            read_decisions(context, named),
        )
    )
    files: list[DataFile] = []
    for state, manifest in sorted(
        zip(states, folded, strict=True), key=lambda pair: pair[0].slot.name
    ):
        files += assemble(state.head, manifest, decisions)
    epochs = {state.slot.name: state.head.epoch for state in states if state.head.epoch}
    return Snapshot(context.root, table.schema, table.partition_by, tuple(files), epochs, asked)


def _manifests(context: Context, states: list[HeadState]) -> Step[list[tuple[DataFile, ...]]]:
    return (yield All(tuple(read_manifest(context, state.head) for state in states)))
