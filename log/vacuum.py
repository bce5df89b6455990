"""Checks against VACUUM of other engines, which may delete files of a job without an entry.

VACUUM deletes files that no entry names and that are older than its retention. It writes an entry
before it deletes, and one after it has ended. A VACUUM with the table's own retention spares every
younger job. With a shorter retention:

=============================  ============================================================
entries since the job's base   the job
=============================  ============================================================
its start and its end          commits if a check finds all of its files
only its start                 is refused: a file may be deleted after the check
=============================  ============================================================

A VACUUM that writes nothing into the log is not noticed, and the next one may start at any time. So
if a job was open for longer than the retention, it commits only if all of its files are there and
younger than that.
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
#: How many entries after a state are searched for the end of a VACUUM.
_AHEAD = 8
#: Safety margin in seconds: so long before the end of the retention a file already counts as one
#: that a VACUUM may delete. It allows for the commit itself and for clocks that differ. For short
#: retentions the margin is a tenth of them.
_MARGIN = 3600.0
#: With a retention of fewer seconds, jobs are not judged by time: every VACUUM may delete files of
#: running jobs then, and no job could commit.
_SHORTEST = 3600.0


def spared_for(retention: float) -> float:
    """Return how many seconds any VACUUM spares a file, less a margin.

    :param retention: the table's retention in seconds.
    """
    return retention - min(_MARGIN, retention / 10)


def check_not_vacuumed(
    layout: LogLayout, change: LogChange, state: LogState, entries: Iterable[LogEntry], now: int
) -> Step[None]:
    """Refuse a change if a VACUUM may have deleted its files, or may be deleting them.

    :param entries: the entries since the change's base, or since the last check.
    :param now: Unix milliseconds.
    :raises CommitConflictError: a VACUUM may have deleted files, or may be deleting them.
    """
    yield from _check_not_outlived(layout, change, state, now)
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


def _check_not_outlived(
    layout: LogLayout, change: LogChange, state: LogState, now: int
) -> Step[None]:
    """Refuse the change of a job that was open for longer than a VACUUM spares its files, unless
    all of them are there and younger.

    Sends no request for a younger job; otherwise a HEAD for each file below the table.
    """
    age = 0.0 if change.began is None else now / 1000 - change.began
    retention = layout.retention(state)
    if retention < _SHORTEST or age < spared_for(retention):
        return
    # A VACUUM of this table does not list files elsewhere, as in a data root.
    keys = [layout.key_of(add.path, state) for add in change.adds if "://" not in add.path]
    found = yield from All(tuple(Head(key) for key in keys))
    late = [
        key
        for key, it in zip(keys, found, strict=True)
        if not isinstance(it, Found) or it.date - it.last_modified >= spared_for(retention)
    ]
    if late:
        raise CommitConflictError(
            f"The job was open for {age / 86400:.1f} days, and the table keeps files that no entry "
            f"names for {retention / 86400:.1f}: these are gone, or a VACUUM may be deleting them: "
            f"{first_few(late)}. The job was not committed.",
            job=change.job,
            remedy="Run it again. Where jobs take longer, lengthen "
            "delta.deletedFileRetentionDuration of the table.",
        )


def _ends_next(layout: LogLayout, state: LogState) -> Step[bool]:
    """Return whether one of the next entries, which the job will judge later, ends the VACUUM."""
    ahead = range(state.version + 1, state.version + 1 + _AHEAD)
    found = yield from read_entries(layout.folder, ahead)
    return any(entry is not None and entry.operation == _END for entry in found)


def _is_short(layout: LogLayout, state: LogState, entry: LogEntry) -> bool:
    """Return whether a VACUUM has a shorter retention than the table's."""
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
