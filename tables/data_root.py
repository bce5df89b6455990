"""Data root of a Delta table: another place where its jobs write their files first.

The table's first job records it in the log. Files there are named by their URLs. Of other engines
only Spark can read them until a checkpoint has copied them into the table.
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

    :raises InvalidInputError: the data root lies in the table.
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
    """Refuse a data root in which another table uses the folder of this table.

    :param table_id: the id of this table; ``None``: it did not exist when the job opened.
    :raises InvalidInputError: the folder is marked for another table, at another store or formerly
        here.
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
    """Return the data root of an existing table; a job may name the same one.

    :param asked: the data root that the job names; ``None``: it names none.
    :raises TableMismatchError: the job names another one.
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
    """Refuse to write into the table's folder in its data root if it is marked for another table.

    This happens if the data root was lost with its mark, and the other table has marked the folder
    since.

    :raises TableMismatchError: the folder is marked for another table, whose purge would delete the
        files.
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
    """Return former columns and properties of a table, but with its present data roots: a root may
    have another endpoint or profile by now."""
    if not roots_of(LogState(metadata=then)):
        return then
    now = (yield from open_log(layout, LogDepth.BLIND)).state.metadata
    return then if now is None else layout.restored(then, now)


def change_data_root(
    root: TableRoot, layout: DeltaLayout, data_root: FastRoot | None, apply: bool
) -> Step[DataRootChange]:
    """Change the data root of a table by an entry of its own. Files stay where they are, and the
    root that they lie in stays recorded.

    :param data_root: the new root; ``None``: the table itself.
    :param apply: ``False`` only reports what would change.
    :raises CommitConflictError: another job changed the columns or properties meanwhile.
    :raises InvalidInputError: the root lies in the table, or another table's files lie there.
    :raises TableMismatchError: the table cannot be written here.
    :raises TableNotFoundError: there is no table.
    """
    if data_root is not None:
        check_data_root(root, data_root)
    state = (yield from open_log(layout, LogDepth.FILES)).state
    if not state.exists:
        raise TableNotFoundError("There is no Delta table here.", table=root.url)
    layout.check_writable(state, removes_rows=False)
    lying = tuple(not_durable(snapshot_of(root, layout, state).files))
    change = DataRootChange(data_root_of(state), data_root, lying)
    if data_root is not None and change.before != data_root:
        yield from refuse_folder_of_another(root, layout, data_root, state.table_id)
    if apply and change.before != data_root:
        yield from change_properties(layout, partial(with_data_root, root=data_root))
    return change
