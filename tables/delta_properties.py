"""Changes of a Delta table's properties, each by an entry of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..committer.errors import InvalidInputError, TableNotFoundError, ZeroRenameError
from ..committer.format.layout import TableRoot, new_job_id
from ..committer.store.requests import Clock, Step
from ..layouts.delta.delta_layout import RETENTION, DeltaLayout
from ..log.change import LogBase, LogChange
from ..log.job_steps import close_refused, commit_or_abandon, open_log_job
from ..log.opening import LogDepth, open_log

#: The shortest and the longest retention, in seconds: an hour and a hundred years.
_LEAST, _MOST = 3600, 36_525 * 86_400


def change_properties(
    layout: DeltaLayout, change: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> Step[None]:
    """Commit new properties of an existing table.

    :param change: returns the new properties from the present ones.
    :raises CommitConflictError: another job changed the columns or properties meanwhile.
    :raises TableNotFoundError: there is no table any more.
    """
    now = int((yield from Clock()) * 1000)
    opened = yield from open_log_job(layout, iter(new_job_id, ""), {}, LogDepth.BLIND)
    state = opened.log.state
    try:
        if state.metadata is None:
            raise TableNotFoundError("There is no Delta table here. Nothing was changed.")
        properties = change(state.metadata.properties)
    except ZeroRenameError:
        # Only the open record was written.
        yield from close_refused(layout, opened.job)
        raise
    changed = LogChange(
        opened.job,
        LogBase(state.version, state.table_id),
        metadata=replace(state.metadata, properties=properties),
        changes_data=False,
        operation="SET TBLPROPERTIES",
    )
    yield from commit_or_abandon(layout, opened.log, changed, now)


@dataclass(frozen=True)
class RetentionChange:
    """A change of a table's retention: the seconds for which removed files stay."""

    before: float
    after: float


def change_retention(
    root: TableRoot, layout: DeltaLayout, seconds: float, apply: bool
) -> Step[RetentionChange]:
    """Change for how long removed files stay, also those that were removed before.

    :param apply: ``False`` only reports what would change.
    :raises InvalidInputError: it is less than an hour, or more than 100 years.
    :raises TableMismatchError: the table cannot be written here.
    :raises CommitConflictError: another job changed the columns or properties meanwhile.
    :raises TableNotFoundError: there is no table.
    """
    if not _LEAST <= seconds <= _MOST:
        raise InvalidInputError(
            f"A retention of {seconds:g} s is not one of an hour to 100 years. Nothing was "
            "changed.",
            table=root.url,
            remedy="Give one that the longest scan and the longest job are shorter than.",
        )
    state = (yield from open_log(layout, LogDepth.BLIND)).state
    if not state.exists:
        raise TableNotFoundError("There is no Delta table here.", table=root.url)
    layout.check_writable(state, removes_rows=False)
    change = RetentionChange(layout.retention(state), float(round(seconds)))
    if apply:
        kept = {RETENTION: f"interval {round(seconds)} seconds"}
        yield from change_properties(layout, lambda there: {**there, **kept})
    return change
