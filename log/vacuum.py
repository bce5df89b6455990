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

An engine that says nothing of it in the log is not seen. Nor does anything tell when the next one
comes: so a job that was open for longer than the retention commits if all its files are there and
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
#: Entries after a state that are looked at for the end of a VACUUM.
_AHEAD = 8
#: Seconds before the end of the retention from which on a VACUUM may delete: for what is done with
#: the file meanwhile, and for clocks that differ. Of short retentions it is a tenth.
_MARGIN = 3600.0
#: Of a shorter retention, in seconds, nothing is judged by time: each VACUUM deletes files of jobs
#: that are at work, and nobody could commit.
_SHORTEST = 3600.0


def spared_for(retention: float) -> float:
    """Return for how long any VACUUM spares a file, with a margin.

    :param retention: of the table; seconds, as what is returned.
    """
    return retention - min(_MARGIN, retention / 10)


def check_not_vacuumed(
    layout: LogLayout, change: LogChange, state: LogState, entries: Iterable[LogEntry], now: int
) -> Step[None]:
    """Refuse a change whose files a VACUUM may have deleted.

    :param entries: those that came since the change's base.
    :param now: milliseconds.
    :raises CommitConflictError: one may have.
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
    """Refuse the change of a job that was open for longer than a VACUUM spares what no entry names,
    unless all its files are there and younger.

    Requests: none of a job that was not; else a HEAD for each file below the table.
    """
    age = 0.0 if change.began is None else now / 1000 - change.began
    retention = layout.retention(state)
    if retention < _SHORTEST or age < spared_for(retention):
        return
    # What lies elsewhere no VACUUM of this table lists.
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
