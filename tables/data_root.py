"""Data root of a Delta table: another place, where its jobs write their files first.

Its first job puts it on record in the log. Files there are named by their URLs: no engine but Spark
reads those, until a checkpoint has copied them into the table.
"""

from __future__ import annotations

from functools import partial

from ..committer.errors import InvalidInputError, TableMismatchError, TableNotFoundError
from ..committer.format.layout import TableRoot
from ..committer.store.fast_root import FastRoot
from ..committer.store.requests import Step
from ..committer.upkeep.checkpoint import DataRootChange, not_durable
from ..layouts.delta.data_roots import data_root_of, roots_of, with_data_root
from ..layouts.delta.delta_layout import DeltaLayout
from ..layouts.delta.root_marks import keep_mark, owner_of
from ..log.actions import LogMetadata
from ..log.opening import LogDepth, open_log
from ..log.replay import LogState
from .delta_files import snapshot_of
from .delta_properties import change_properties


def check_data_root(root: TableRoot, data_root: FastRoot) -> None:
    """Refuse a data root that lies in the table.

    :raises InvalidInputError: it does.
    """
    if not root.is_apart(data_root):
        raise InvalidInputError(
            f"The data root {data_root} lies in the table itself. Nothing was written.",
            table=root.url,
            remedy="Name another bucket, or a prefix outside the table; or leave the data root "
            "out: files then lie in the table.",
        )


def refuse_folder_of_another(
    root: TableRoot, layout: DeltaLayout, data_root: FastRoot, table_id: str | None
) -> Step[None]:
    """Refuse a data root in which another table has its files in the folder of this one.

    :param table_id: of this table; ``None``: it was not there when the job opened.
    :raises InvalidInputError: another table of another store has.
    :raises FastRootGoneError: the root cannot be reached.
    """
    owner = yield from owner_of(layout.root, data_root)
    if owner in (None, table_id):
        return
    # Another first job may have made the table meanwhile.
    if (yield from open_log(layout, LogDepth.BLIND)).state.table_id == owner:
        return
    raise InvalidInputError(
        f"In the data root {data_root} the folder of this table has files of another one, whose "
        "bucket and path have the same names, or of a table that was here before. Nothing was "
        "written.",
        table=root.url,
        remedy="Name a data root that the other table does not have; or, if that is gone, delete "
        "the folder.",
    )


def kept_data_root(root: TableRoot, state: LogState, asked: FastRoot | None) -> FastRoot | None:
    """The data root of a table that is there, for a job that may ask for it.

    :raises TableMismatchError: the job asks for another one.
    """
    there = data_root_of(state)
    if asked not in (None, there):
        raise TableMismatchError(
            f"The table's data root is {there or 'none'}, the job asks for {asked}. "
            "Nothing was written.",
            table=root.url,
            remedy="Leave data_root out; or change the table's: zero-rename data-root "
            f"{root.url} '{asked}' --apply",
        )
    return there


def refuse_marked_by_another(
    root: TableRoot, layout: DeltaLayout, data_root: FastRoot, table_id: str | None
) -> Step[None]:
    """Refuse to write into a folder of a table's data root that another table has marked as its own
    since the data root was lost with the mark.

    :raises TableMismatchError: it has: its purge would delete what is written there.
    """
    owner = yield from keep_mark(layout.root, data_root, table_id)
    if owner not in (None, table_id):
        raise TableMismatchError(
            f"In the data root {data_root} the folder of this table is marked as that of another "
            "one, whose bucket and path have the same names, and whose purge would delete files "
            "of this one. Nothing was written.",
            table=root.url,
            remedy="Give this table another data root: zero-rename data-root "
            f"{root.url} ROOT --apply",
        )


def reached_as_now(layout: DeltaLayout, then: LogMetadata) -> Step[LogMetadata]:
    """Return former columns and properties of a table with its present data roots: a root may be
    reached otherwise by now."""
    if not roots_of(LogState(metadata=then)):
        return then
    now = (yield from open_log(layout, LogDepth.BLIND)).state.metadata
    return then if now is None else layout.restored(then, now)


def change_data_root(
    root: TableRoot, layout: DeltaLayout, data_root: FastRoot | None, apply: bool
) -> Step[DataRootChange]:
    """Change where the files of a table's jobs lie first, by an entry of its own, or say what would
    change. Files stay where they are, and the root that they lie in stays on record.

    :param data_root: ``None``: in the table.
    :raises CommitConflictError: another job changes the columns or properties meanwhile.
    :raises InvalidInputError: the root lies in the table, or another table's files lie there.
    :raises TableNotFoundError: no table there.
    """
    if data_root is not None:
        check_data_root(root, data_root)
    state = (yield from open_log(layout, LogDepth.FILES)).state
    if not state.exists:
        raise TableNotFoundError("There is no Delta table here.", table=root.url)
    lying = tuple(not_durable(snapshot_of(root, layout, state).files))
    change = DataRootChange(data_root_of(state), data_root, lying)
    if data_root is not None and change.before != data_root:
        yield from refuse_folder_of_another(root, layout, data_root, state.table_id)
    if apply and change.before != data_root:
        yield from change_properties(layout, partial(with_data_root, root=data_root))
    return change
