"""Data root of a Delta table: another place, where its jobs write their files first.

Its first job puts it on record in the log. Files there are named by their URLs: no engine but Spark
reads those, until a checkpoint has copied them into the table.
"""

from __future__ import annotations

from dataclasses import replace

from ..committer.errors import (
    InvalidInputError,
    RefusedError,
    StoreRefusedError,
    StoreUnreachableError,
    TableMismatchError,
    TableNotFoundError,
)
from ..committer.format.layout import TableRoot, new_job_id
from ..committer.store.fast_root import FastRoot
from ..committer.store.requests import Clock, Step
from ..committer.upkeep.checkpoint import DataRootChange, not_durable
from ..layouts.delta.data_roots import data_root_of, with_data_root
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.change import LogBase, LogChange
from ..log.job_steps import abandon_job, commit_job, open_log_job
from ..log.opening import LogDepth, open_log
from ..log.replay import LogState
from .delta_files import snapshot_of


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


def change_data_root(
    root: TableRoot, layout: DeltaLayout, data_root: FastRoot | None, apply: bool
) -> Step[DataRootChange]:
    """Change where the files of a table's jobs lie first, by an entry of its own, or say what would
    change. Files stay where they are, and the root that they lie in stays on record.

    :param data_root: ``None``: in the table.
    :raises CommitConflictError: another job changes the columns or properties meanwhile.
    :raises InvalidInputError: the root lies in the table.
    :raises TableNotFoundError: no table there.
    """
    if data_root is not None:
        check_data_root(root, data_root)
    state = (yield from open_log(layout, LogDepth.FILES)).state
    if not state.exists:
        raise TableNotFoundError("There is no Delta table here.", table=root.url)
    lying = tuple(not_durable(snapshot_of(root, layout, state).files))
    change = DataRootChange(data_root_of(state), data_root, lying)
    if apply and change.before != data_root:
        yield from _put_on_record(layout, data_root)
    return change


def _put_on_record(layout: DeltaLayout, data_root: FastRoot | None) -> Step[None]:
    now = int((yield from Clock()) * 1000)
    opened = yield from open_log_job(layout, iter(new_job_id, ""), {}, LogDepth.BLIND)
    state = opened.log.state
    assert state.metadata is not None
    properties = with_data_root(state.metadata.properties, data_root)
    change = LogChange(
        opened.job,
        LogBase(state.version, state.table_id),
        metadata=replace(state.metadata, properties=properties),
        changes_data=False,
        operation="SET TBLPROPERTIES",
    )
    try:
        yield from commit_job(layout, opened.log, change, now)
    except RefusedError as error:
        # A store that stops answering may have done so after the entry was there.
        if not isinstance(error, StoreRefusedError | StoreUnreachableError):
            yield from abandon_job(layout, opened.job)
        raise
