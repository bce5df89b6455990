"""A change: what a job wants to commit, and the actions it becomes on a state.

=============  ==========================================  =====================================
verb           members                                     removes
=============  ==========================================  =====================================
append         adds                                        none
replace        adds, ``replaced``                          what is live there as it commits
merge, delete  adds, ``removes``, ``reads``                exactly these
rerun          ``former``, ``removes``                     these, too: what its run left before
compaction     the same, ``changes_data`` false            exactly these
checkpoint     the same; adds with the tags of sources     exactly these
restore        ``returned``, ``removes``, ``reads`` all    exactly these; brings back tombstones
repair         those of the entry that was written over    what it removed
settlement     ``settles``, ``reads``                      none, or those of a restore
fence          ``fences``                                  none
purge          ``forgets``                                 none; tombstones become forgotten
=============  ==========================================  =====================================

One verb, other lists: undo and resolution are changes, too. The entry that
was read is what is bound: actions are made anew for each number.
"""

from __future__ import annotations

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
#: That of one which commits again what was written over.
REPAIR = "REPAIR"
#: That of one which settles a conflict by rows that are there.
SETTLE = "SETTLE"
#: That of one which puts copies in place of files that lie in a data root.
CHECKPOINT = "CHECKPOINT"
#: Those of entries that write rows of files again.
REWRITES = frozenset({"MERGE", "DELETE", "OPTIMIZE"})
#: The tag of a copy: the path of its source.
COPY_OF = "copyOf"
#: Applications of our transactions.
FENCE, RUN = "zero_rename.fence/", "zero_rename.run/"


class Overtaking(StrEnum):
    """What a replace does where another job has changed its partitions since it opened."""

    FAIL = "fail"
    LAST_WINS = "last_wins"
    NEWEST_RUN = "newest_run"


@dataclass(frozen=True)
class LogBase:
    """The version that a job's rows were computed from, and of which table; -1: there was none."""

    version: int
    table_id: str | None = None


@dataclass(frozen=True)
class LogChange:
    """What a job wants to commit.

    :param job: its id, and the entry's ``txnId``: a job has one entry, whoever writes it.
    :param base: entries after it are judged.
    :param columns: those that the added files were written by; ``None``: it adds none.
    :param returned: adds that bring back removed files.
    :param ranks: how new its run is, by partition.
    :param run: the key under which a run does its work once.
    :param former: the version of the run's last entry, whose rows this change takes the place of;
        ``None``: it has none.
    :param settles: the conflicts of runs that it settles, by partition.
    :param owner: who runs it, as the entry tells it.
    :param told: what the entry says besides for whoever asks what the job did, as JSON.
    :param emptied: of a restore: ranks that transactions keep of partitions from then on, and
        kept otherwise before.
    :param own: jobs of the same application, committed since the base: their entries overtake
        nothing.
    :param began: when its job began, by the clock of its driver, in seconds since the epoch;
        ``None``: just now, or what it adds was there before.
    :param joins: of a job that makes the table: if another job makes the same table first, this
        one adds to it, and is judged as any other job.
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
        """What must be known: live files to remove some or to compare ranks, tombstones to bring
        files back."""
        if self.returned or self.forgets:
            return LogDepth.WHOLE
        ranked = self.overtaking is Overtaking.NEWEST_RUN
        return LogDepth.FILES if self.removes or self.replaced or ranked else LogDepth.BLIND

    @property
    def removes_rows(self) -> bool:
        return bool(self.replaced or self.removes) and self.changes_data

    @property
    def isolated(self) -> bool:
        """Tell whether it is a blind append: nothing that it read or removes can be overtaken."""
        return not (self.removes or self.replaced or self.reads or self.returned)

    def touched(self, state: LogState) -> Scope:
        """The partitions of a state that it replaces or adds to."""
        filled = (state.partition(it) for it in self.adds)
        places = self.replaced.partitions.union(it for it in filled if it is not None)
        return Scope(places, self.replaced.all)

    def after_making(self, metadata: LogMetadata, protocol: LogProtocol) -> LogChange:
        """Return the change for a table that another job has made first: if the table is the one
        that this job would have made, but for id and time, the change makes none."""
        own = self.metadata
        if not self.joins or own is None or self.protocol != protocol:
            return self
        same = replace(metadata, id=own.id, created_at=own.created_at) == own
        return replace(self, metadata=None, protocol=None) if same else self


def removed_files(change: LogChange, state: LogState) -> list[AddFile]:
    """The live files that a change removes from a state."""
    if not change.replaced:
        return [state.live[path] for path in sorted(change.removes)]
    return [
        it
        for it in state.live.values()
        if it.path in change.removes or change.replaced.has(state.partition(it))
    ]


def change_actions(change: LogChange, state: LogState, now: int) -> tuple[Action, ...]:
    """The entry of a change on a state.

    :param now: milliseconds, for readers; nothing is decided by it but a tombstone's age.
    """
    version, new = state.version + 1, (*change.adds, *change.returned)
    named = {add.path for add in new}
    removed = [it for it in removed_files(change, state) if it.path not in named]
    tombstones = (
        RemoveFile(it.path, now, change.changes_data, it.values, it.size, it.tags) for it in removed
    )
    if change.metadata is not None:
        state = replace(state, metadata=change.metadata)  # By which its files are named.
    ranks = ranks_after(state, change.adds, removed, change.replaced, change.ranks)
    if change.settles and change.operation == RESTORE:
        ranks = dict.fromkeys(ranks, NO_RANKS)  # Its settlement says how new it is.
    elif change.operation == RESTORE:
        ranks = {**change.emptied}  # The others are kept as they were then.
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
    """The partitions whose settlement a change ends: another run replaces them, or files of them
    are restored."""
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
        return add  # Its rows are of the job that wrote the source.
    tags = {**add.tags, "job": change.job, "v": str(version)}
    if ranks is not None and ranks != NO_RANKS:
        tags[TAG] = tag_of(ranks)
    size, values, modified = add.size, add.values, add.modified
    return AddFile(add.path, values, size, modified, change.changes_data, add.statistics, tags)


def _info(change: LogChange, state: LogState, now: int, removed: int) -> dict[str, Any]:
    metadata = change.metadata or state.metadata
    columns = list(metadata.partition_columns) if metadata else []
    mode = "Overwrite" if change.replaced else "Append"
    info = {
        "timestamp": now,
        "operation": change.operation,
        "operationParameters": {"mode": mode, "partitionBy": str(columns).replace("'", '"')},
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
    # A first entry has read none: other engines read the number without a sign.
    return info | ({"readVersion": state.version} if state.exists else {})
