"""Restore of a former version, for the whole table or some partitions, from files that still exist.

================================  =========================================================
a file of that version            then
================================  =========================================================
live                              stays
removed, tombstone, object there  comes back
removed, tombstone too old        lost: purge may be deleting it
forgotten by purge, no tombstone  lost
a copy, or copied since           file or copy: one that is kept stays or comes back
                                  (:mod:`.copies`)
object missing                    lost: another engine's VACUUM deleted it
================================  =========================================================

The restored partitions count as read: any change of them since the plan is a conflict. So is an
entry that forgets a file which is to come back. Columns and properties come back only with the
whole table. If only some partitions are restored, their files must fit the table's columns at the
commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..committer.errors import InvalidInputError, TableMismatchError
from ..committer.store.requests import All, Found, Head, Step
from .actions import AddFile, LogMetadata
from .change import RESTORE, LogBase, LogChange
from .copies import removed_copies, with_copies
from .log_layout import LogLayout
from .opening import LogDepth, OpenedLog, open_log
from .partitions import Partition
from .ranks import PartitionRanks, emptied_again, keeps_ranks
from .replay import LogState
from .scope import ALL, Scope
from .vacuum import spared_for


@dataclass(frozen=True)
class LogRestore:
    """A change that restores a version.

    :param opened: the present state, which the plan was made on.
    :param lost: paths of files of that version that cannot be brought back.
    """

    opened: OpenedLog
    change: LogChange
    lost: tuple[str, ...]

    @property
    def is_needed(self) -> bool:
        """True if the restore changes files or columns."""
        change = self.change
        return bool(change.removes or change.returned or change.metadata)


def plan_restore(
    layout: LogLayout,
    job: str,
    version: int,
    now: int,
    owner: Mapping[str, Any],
    within: Scope = ALL,
) -> Step[LogRestore]:
    """Plan the restore of a version. Before the commit the caller must report the lost files.

    :param now: Unix milliseconds, by the store's clock.
    :param within: the partitions to restore.
    :raises InvalidInputError: only some partitions are restored, and their files do not fit the
        table's present columns; or the whole table is, and it could not be written here any more.
    """
    opened = yield from open_log(layout, LogDepth.WHOLE)
    former = yield from open_log(layout, LogDepth.FILES, version)
    then, state = former.state, opened.state
    assert then.metadata is not None
    assert state.metadata is not None
    metadata = None
    if within.all:
        restored = layout.restored(then.metadata, state.metadata)
        metadata = restored if restored != state.metadata else None
    held = (it for it in then.live.values() if within.has(then.partition(it)))
    ranks = yield from find_ranks(layout, state, then, within)
    files = LogFiles(with_copies(held, state), then.metadata, ranks)
    return (yield from bring_back(layout, opened, files, within, metadata, job, now, owner))


@dataclass(frozen=True)
class LogFiles:
    """Files of a former state by path, and the columns of that state.

    :param metadata: the columns; ``None``: there was no table, and no file.
    :param emptied: the result of :func:`find_ranks`.
    """

    live: Mapping[str, AddFile]
    metadata: LogMetadata | None
    emptied: Mapping[Partition, PartitionRanks]


def find_ranks(
    layout: LogLayout, state: LogState, then: LogState, within: Scope
) -> Step[dict[Partition, PartitionRanks]]:
    """Find the ranks that transactions kept in a former state, for partitions with other ranks now.

    :param state: the present state, with all of its transactions.
    """
    if not keeps_ranks(state):
        return {}
    if not then.all_transactions:
        then = (yield from open_log(layout, LogDepth.WHOLE, then.version)).state
    return emptied_again(state, then, within)


def bring_back(
    layout: LogLayout,
    opened: OpenedLog,
    then: LogFiles,
    within: Scope,
    metadata: LogMetadata | None,
    job: str,
    now: int,
    owner: Mapping[str, Any],
) -> Step[LogRestore]:
    """Plan the change after which partitions hold the files of a former state and no others.

    :param opened: the present state, with its tombstones.
    :param then: the files of the former state.
    :param within: the partitions to restore.
    :param metadata: the columns and properties that come back; ``None``: the present ones stay.
    :raises InvalidInputError: the files do not fit the columns; or the table could not be written
        here any more.
    :raises TableMismatchError: it cannot be written here now.
    """
    state = opened.state
    assert state.metadata is not None
    if metadata is not None:
        layout.check_writable(state, removes_rows=False)
        _refuse_unwritable(layout, replace(state, metadata=metadata))
    there, lost = yield from find_returned(layout, state, then.live.values(), now)
    if there and then.metadata is not None and metadata is None:
        refuse_other_columns(layout, then.metadata, state.metadata)
    goes = {path for path, it in state.live.items() if within.has(state.partition(it))}
    change = LogChange(
        job,
        LogBase(state.version, state.table_id),
        columns=then.metadata if there else None,
        removes=frozenset(goes - then.live.keys()),
        returned=there,
        reads=within,
        metadata=metadata,
        operation=RESTORE,
        emptied=then.emptied,
        owner=owner,
    )
    return LogRestore(opened, change, lost)


def _refuse_unwritable(layout: LogLayout, state: LogState) -> None:
    """Refuse to bring back columns or properties with which a job of this package could not write.

    :param state: the present state, with the columns and properties that would come back.
    :raises InvalidInputError: they need a feature that is not supported.
    """
    try:
        layout.check_writable(state, removes_rows=False)
    except TableMismatchError as error:
        raise InvalidInputError(
            "The columns or properties that would come back are not supported here. "
            f"{error.message}",
            remedy="Restore the partitions alone, which leaves columns and properties as they are; "
            "or restore by an engine that supports this.",
        ) from error


def refuse_other_columns(layout: LogLayout, then: LogMetadata, now: LogMetadata) -> None:
    """Refuse to bring back files that do not fit the present columns.

    :raises InvalidInputError: they do not fit.
    """
    if not layout.columns_fit(then, now):
        raise InvalidInputError(
            "The files that would come back have other columns than the table has now. Nothing "
            "was changed.",
            remedy="Restore the whole table, whose columns come back, too; or load the partitions "
            "again.",
        )


def find_returned(
    layout: LogLayout, state: LogState, wanted: Iterable[AddFile], now: int
) -> Step[tuple[tuple[AddFile, ...], tuple[str, ...]]]:
    """Find which of the wanted files that are not live can be brought back, and which are lost.

    :param state: the present state, with its tombstones.
    :param now: Unix milliseconds, by the store's clock.
    :return: the files to bring back, each as itself or as a copy; the paths of the lost ones.
    """
    kept_since = now - int(spared_for(layout.retention(state)) * 1000)
    gone, removed = [it for it in wanted if it.path not in state.live], state.removed or {}
    left = {
        path: [it for it in same if removed[it.path].removed_at > kept_since]
        for path, same in removed_copies(gone, state).items()
    }
    returned: list[AddFile] = []
    while tried := {path: same.pop(0) for path, same in left.items() if same}:
        found = yield from All(
            tuple(Head(layout.key_of(add.path, state)) for add in tried.values())
        )
        for (path, add), it in zip(tried.items(), found, strict=True):
            if isinstance(it, Found):
                returned.append(replace(add, changes_data=True))
                del left[path]
    return tuple(returned), tuple(sorted(left))
