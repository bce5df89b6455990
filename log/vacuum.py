"""VACUUM of other engines: what it may have deleted of a job that has no entry yet.

It deletes files that no entry names and that are older than its retention. It says so in entries of
its own: what it is about to delete before, that it has ended after. One that keeps the table's own
retention spares every job that is younger. Of a shorter one:

=============================  ============================================================
entries since the job's base   the job
=============================  ============================================================
its start, and its end         commits if its files are there: they are looked for
its start alone                is refused: a file may go after it was looked for
=============================  ============================================================

An engine that says nothing of it in the log is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..committer.errors import CommitConflictError, first_few
from ..committer.store.requests import All, Found, Head, Step
from .change import LogChange
from .entries import LogEntry
from .log_layout import LogLayout
from .opening import read_entries
from .replay import LogState

_START, _END = "VACUUM START", "VACUUM END"
#: Entries after a state that are looked at for the end of a VACUUM.
_AHEAD = 8


def check_not_vacuumed(
    layout: LogLayout, change: LogChange, state: LogState, entries: Iterable[LogEntry]
) -> Step[None]:
    """Refuse a change whose files a VACUUM may have deleted.

    :param entries: those that came since the change's base.
    """
    running: int | None = None
    short = False
    for entry in entries:
        if entry.operation == _START and _is_short(layout, state, entry):
            running, short = entry.version, True
        elif entry.operation == _END:
            running = None
    if not short or not change.adds:
        return
    if running is not None and not (yield from _ends_next(layout, state)):
        raise _deleted(change, f"A VACUUM (version {running}) may be deleting files of this job.")
    keys = {layout.key_of(add.path, state): add.path for add in change.adds}
    found = yield from All(tuple(Head(key) for key in keys))
    gone = [keys[key] for key, it in zip(keys, found, strict=True) if not isinstance(it, Found)]
    if gone:
        raise _deleted(change, f"A VACUUM has deleted files of this job: {first_few(gone)}.")


def _ends_next(layout: LogLayout, state: LogState) -> Step[bool]:
    """Tell whether the entries that the job is about to meet say that the VACUUM has ended."""
    ahead = range(state.version + 1, state.version + 1 + _AHEAD)
    found = yield from read_entries(layout.folder, ahead)
    return any(entry is not None and entry.operation == _END for entry in found)


def _is_short(layout: LogLayout, state: LogState, entry: LogEntry) -> bool:
    """Tell whether a VACUUM deletes what is younger than the table's retention."""
    parameters = entry.info.members.get("operationParameters")
    members = parameters if isinstance(parameters, dict) else {}
    said = members.get("specifiedRetentionMillis", members.get("defaultRetentionMillis"))
    try:
        return int(str(said)) < layout.retention(state) * 1000
    except ValueError:
        return True


def _deleted(change: LogChange, what: str) -> CommitConflictError:
    return CommitConflictError(
        f"{what} The job was not committed.",
        job=change.job,
        remedy="Run it again once the VACUUM has ended; let it keep delta."
        "deletedFileRetentionDuration.",
    )
