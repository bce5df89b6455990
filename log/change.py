"""Changes that jobs commit, and the actions that they become on a state.

=============  ==========================================  =====================================
verb           members                                     removes
=============  ==========================================  =====================================
append         adds                                        none
replace        adds, ``replaced``                          all files live there at the commit
merge, delete  adds, ``removes``, ``reads``                exactly these
rerun          ``former``, ``removes``                     also what its run left before
compaction     as merge, ``changes_data`` false            exactly these
checkpoint     as compaction; adds have sources' tags      exactly these
restore        ``returned``, ``removes``, ``reads`` all    exactly these; brings back tombstones
repair         those of the overwritten entry              what that entry removed
settlement     ``settles``, ``reads``                      none, or those of a restore
fence          ``fences``                                  none
purge          ``forgets``                                 none; tombstones become forgotten
=============  ==========================================  =====================================

All verbs are one kind of change with different lists; undo and resolution are changes, too. A
change is bound to the state before its entry, so its actions are built again for each number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ..committer.format.records.partition_ranks import NO_RANKS, PartitionRanks
from ..committer.format.settling import Settling
from .actions import (
    FORGOTTEN,
    Action,
    AddFile,
    AppTransaction,
    CommitInfo,
    LogMetadata,
    LogProtocol,
    RemoveFile,
)
from .entries import OURS
from .opening import LogDepth
from .ranks import TAG, LogRanks, emptied_transactions, ranks_after, tag_of
from .replay import LogState, Partition
from .scope import NONE, Scope
from .settling import settled_in, settled_transactions, settles_as_json

#: The operation of an entry that restores a version.
RESTORE = "RESTORE"
#: The operation of an entry that commits again what another writer has overwritten.
REPAIR = "REPAIR"
#: The operation of an entry that settles a conflict by rows that are there.
SETTLE = "SETTLE"
#: The operation of an entry that replaces files in a data root by copies.
CHECKPOINT = "CHECKPOINT"
#: The operations of entries that rewrite rows of files.
REWRITES = frozenset({"MERGE", "DELETE", "OPTIMIZE"})
#: The member of a repair's entry with the version of the entry that it commits again.
REPAIRS = "repairs"
#: The tag of a copy: the path of its source.
COPY_OF = "copyOf"
#: Prefixes of the applications of this package's transactions.
FENCE, RUN = "zero_rename.fence/", "zero_rename.run/"


class Overtaking(StrEnum):
    """Policy of a replace whose partitions another job has changed since it opened."""

    FAIL = "fail"
    LAST_WINS = "last_wins"
    NEWEST_RUN = "newest_run"


@dataclass(frozen=True)
class LogBase:
    """The version that a job's rows were computed from.

    :param version: -1 if there was no table.
    :param table_id: the table that had this version.
    """

    version: int
    table_id: str | None = None


@dataclass(frozen=True)
class LogChange:
    """The change of a table that a job wants to commit.

    :param job: the job's id, and the entry's ``txnId``: a job has one entry, even if another
        process writes it.
    :param base: the version that the job has read; entries after it are judged.
    :param columns: the columns with which the added files were written; ``None``: it adds none.
    :param removes: the paths of files to remove.
    :param returned: adds that bring back removed files.
    :param replaced: the partitions whose live files are all removed.
    :param reads: the partitions that the job has read: any change of them since is a conflict.
    :param ranks: how new the job's run is, by partition.
    :param run: the key under which a run does its work once.
    :param former: the version of the run's last entry, whose rows this change replaces; ``None``:
        there is none.
    :param fences: jobs that can no longer commit after this change.
    :param forgets: tombstones of files that purge deletes.
    :param settles: the conflicts of runs that it settles, by partition.
    :param owner: the job's owner, as the entry records it.
    :param told: further members of the entry about what the job did, as JSON.
    :param emptied: for a restore: the ranks of partitions that transactions have to keep from then
        on, and that differ from those kept before.
    :param own: jobs of the same application that committed since the base: their entries are no
        conflict.
    :param began: when the job began, by the clock of its driver, in Unix seconds; ``None``: just
        now, or the files that it adds were there before.
    :param joins: for a job that makes the table: if another job makes the same table first, this
        one adds to it, and is judged like any other job.
    """

    job: str
    base: LogBase
    columns: LogMetadata | None = None
    adds: tuple[AddFile, ...] = ()
    removes: frozenset[str] = frozenset()
    returned: tuple[AddFile, ...] = ()
    replaced: Scope = NONE
    reads: Scope = NONE
    overtaking: Overtaking = Overtaking.FAIL
    ranks: LogRanks = field(default_factory=LogRanks)
    run: str | None = None
    former: int | None = None
    fences: frozenset[str] = frozenset()
    forgets: tuple[RemoveFile, ...] = ()
    metadata: LogMetadata | None = None
    protocol: LogProtocol | None = None
    changes_data: bool = True
    operation: str = "WRITE"
    settles: Mapping[Partition, Settling] = field(default_factory=dict)
    owner: Mapping[str, Any] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)
    emptied: Mapping[Partition, PartitionRanks] = field(default_factory=dict)
    joins: bool = False
    own: frozenset[str] = frozenset()
    began: float | None = None

    @property
    def depth(self) -> LogDepth:
        """The depth to which the log must be read: live files to remove some or to compare ranks,
        tombstones to bring files back."""
        if self.returned or self.forgets:
            return LogDepth.WHOLE
        ranked = self.overtaking is Overtaking.NEWEST_RUN
        return LogDepth.FILES if self.removes or self.replaced or ranked else LogDepth.BLIND

    @property
    def removes_rows(self) -> bool:
        return bool(self.replaced or self.removes) and self.changes_data

    @property
    def isolated(self) -> bool:
        """True for a blind append: it has read nothing and removes nothing, so it has no conflict
        with other jobs."""
        return not (self.removes or self.replaced or self.reads or self.returned)

    def repeats(self, last: int, state: LogState) -> bool:
        """Return whether the change would commit its run again.

        :param last: the version of the run's last entry, by the state or by the run's report.
        """
        if last == self.former:
            return False
        # A report may name an entry that was overwritten; its transaction is in no state then.
        is_lost = last == self.told.get(REPAIRS) and f"{RUN}{self.run}" not in state.transactions
        return not is_lost

    def touched(self, state: LogState) -> Scope:
        """Return the partitions that the change replaces or adds to."""
        filled = (state.partition(it) for it in self.adds)
        places = self.replaced.partitions.union(it for it in filled if it is not None)
        return Scope(places, self.replaced.all)

    def after_making(self, metadata: LogMetadata, protocol: LogProtocol) -> LogChange:
        """Return the change for a table that another job has made first.

        If that table is the one that this job would have made, except for id and time, the returned
        change does not make a table."""
        own = self.metadata
        if not self.joins or own is None or self.protocol != protocol:
            return self
        same = replace(metadata, id=own.id, created_at=own.created_at) == own
        return replace(self, metadata=None, protocol=None) if same else self


def removed_files(change: LogChange, state: LogState) -> list[AddFile]:
    """Return the live files that a change removes from a state."""
    if not change.replaced:
        return [state.live[path] for path in sorted(change.removes)]
    return [
        it
        for it in state.live.values()
        if it.path in change.removes or change.replaced.has(state.partition(it))
    ]


def change_actions(change: LogChange, state: LogState, now: int) -> tuple[Action, ...]:
    """Return the actions of the entry that commits a change on a state.

    :param now: Unix milliseconds, for readers. It decides nothing except a tombstone's age.
    """
    version, new = state.version + 1, (*change.adds, *change.returned)
    named = {add.path for add in new}
    removed = [it for it in removed_files(change, state) if it.path not in named]
    tombstones = (
        RemoveFile(it.path, now, change.changes_data, it.values, it.size, it.tags) for it in removed
    )
    if change.metadata is not None:
        state = replace(state, metadata=change.metadata)  # The files use its partition columns.
    ranks = ranks_after(state, change.adds, removed, change.replaced, change.ranks)
    if change.settles and change.operation == RESTORE:
        ranks = dict.fromkeys(ranks, NO_RANKS)  # The settlement has the partition's rank.
    elif change.operation == RESTORE:
        ranks = {**change.emptied}  # Ranks of other partitions come back with the files' tags.
    transactions = [
        *(AppTransaction(FENCE + job, 1, now) for job in sorted(change.fences)),
        *([AppTransaction(RUN + change.run, version, now)] if change.run is not None else []),
        *emptied_transactions(state, ranks, new, removed, change.replaced, now, change.emptied),
        *settled_transactions(state, change.settles, _ended(change, state, removed), now),
    ]
    return (
        CommitInfo(_info(change, state, now, len(removed))),
        *([change.protocol] if change.protocol else []),
        *([change.metadata] if change.metadata else []),
        *transactions,
        *tombstones,
        *(RemoveFile(it.path, FORGOTTEN, False, it.values, it.size) for it in change.forgets),
        *(
            _tagged(change, version, add, ranks.get(state.partition(add) or ()))
            for add in change.adds
        ),
        *change.returned,
    )


def _ended(change: LogChange, state: LogState, removed: list[AddFile]) -> set[Partition]:
    """Return the partitions whose settlement a change ends: another run replaces them, or a restore
    brings back or removes their files."""
    settled = settled_in(state)
    if not settled:
        return set()
    restored = {state.partition(it) for it in (*removed, *change.returned)}
    return {
        place
        for place, it in settled.items()
        if (change.operation == RESTORE and place in restored)
        or (change.replaced.has(place) and it.runs.stands != change.run)
    }


def _tagged(change: LogChange, version: int, add: AddFile, ranks: PartitionRanks | None) -> AddFile:
    if change.operation == CHECKPOINT:
        return add  # Its tags name the job that wrote the source, and so these rows.
    tags = {**add.tags, "job": change.job, "v": str(version)}
    if ranks is not None and ranks != NO_RANKS:
        tags[TAG] = tag_of(ranks)
    size, values, modified = add.size, add.values, add.modified
    return AddFile(add.path, values, size, modified, change.changes_data, add.statistics, tags)


def _info(change: LogChange, state: LogState, now: int, removed: int) -> dict[str, Any]:
    metadata = change.metadata or state.metadata
    columns = list(metadata.partition_columns) if metadata else []
    by, mode = json.dumps(columns, ensure_ascii=False), "Overwrite" if change.replaced else "Append"
    info = {
        "timestamp": now,
        "operation": change.operation,
        "operationParameters": {"mode": mode, "partitionBy": by},
        "isolationLevel": "Serializable",
        "isBlindAppend": change.isolated and bool(change.adds),
        "operationMetrics": {
            "numFiles": str(len(change.adds) + len(change.returned)),
            "numOutputBytes": str(sum(add.size for add in change.adds)),
            "numRemovedFiles": str(removed),
        },
        "engineInfo": "zero_rename",
        "txnId": change.job,
        OURS: {
            **change.told,
            "job": change.job,
            "base": change.base.version,
            "replaced": change.replaced.as_json() if change.replaced else None,
            "former": change.former,
            "onConflict": change.overtaking.value,
            "settles": settles_as_json(change.settles) or None,
            "owner": dict(change.owner),
        },
    }
    # A first entry has read no version. It cannot say -1: other engines read an unsigned number.
    return info | ({"readVersion": state.version} if state.exists else {})
