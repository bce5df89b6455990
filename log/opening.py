"""Opening of a log: the state of a table, read from as few objects as possible.

::

    former state ── LIST from its checkpoint ── entries since, if nothing else has changed
    hint ── LIST from it ──┬── no entry: no table
                           ├── newest N.crc, if right ── entries since ── state without tombstones
                           ├── newest whole checkpoint ── entries since ── whole state
                           └── cut checkpoint ── the one before, or the first entry

=========================  ==================================================================
what may have happened     action
=========================  ==================================================================
hint too new or truncated  the log is listed from its beginning
object missing since LIST  others clean the log: all is read again
entry not as listed        it was overwritten: reported in ``overwritten``, the new one counts
crc of other entries       reported in ``overwritten``, the crc is not used
number missing             refused: nothing is guessed across a hole
over an hour in all        if others clean the log, all is read again
=========================  ==================================================================

The end is the greatest number that the listing shows; a missing number never marks the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial

from ..committer.errors import (
    InvalidInputError,
    RecordDamagedError,
    SnapshotGoneError,
    TableMismatchError,
    TableNotFoundError,
)
from ..committer.store.listing import list_objects
from ..committer.store.requests import Absent, All, Clock, Found, Get, Step
from .actions import Action, UnreadFeatureError
from .checkpoint import read_checkpoint, read_hint
from .checkpoint_files import CheckpointFiles, CheckpointParts
from .checksum import ReadChecksum, read_checksum
from .entries import ENTRY_BYTES, ListedLog, LogEntry, LogFolder, read_entry, sort_listing
from .log_layout import LogLayout
from .partitions import Partition, PartitionChoice
from .replay import LogState, Replay, log_hole, replay

#: Seconds for which a listing may be used where others clean the log. They are not more than the
#: shortest retention that Delta's engines accept for entries, so an entry that came after the
#: listing cannot have been cleaned.
FRESH = 3600.0
#: If there are more live files than this, they are not all read for a few partitions.
MANY = 20_000
#: How often an opening is tried while others clean the log.
_TRIES = 5
#: How many bytes of a checkpoint's part or of a checksum file are read.
_STATE_BYTES = 2 * 1024 * 1024 * 1024


class LogDepth(IntEnum):
    """Depth to which a state must be read. Each depth includes the ones before it."""

    BLIND = 0  #: protocol, columns and newest transactions, as an append needs them
    FEW = 1  #: live files, unless there are more than :data:`MANY`
    FILES = 2  #: live files
    WHOLE = 3  #: tombstones and every transaction


@dataclass(frozen=True)
class OpenedLog:
    """A state that was read, and the listing that shows the next number.

    :param listed_at: this process's clock before the listing was sent.
    :param overwritten: versions whose entries have changed: a writer without conditions has
        destroyed a commit.
    :param written_at: when the state's newest entry was written, by the store's clock; infinite if
        the entry was cleaned.
    :param listed: the listing; ``None``: there is no table, or the state was made without one.
    """

    state: LogState
    listed_at: float
    overwritten: tuple[int, ...] = ()
    written_at: float = 0.0
    listed: ListedLog | None = None


#: Reads the actions of one part of a checkpoint, by its body and its key.
_PartReader = Callable[[bytes, str], Iterable[Action]]


class _LogCleaned(Exception):
    """An object of the listing is missing: other engines clean the log."""


def list_log(folder: LogFolder, since: int = 0) -> Step[ListedLog]:
    """List a log from a version on."""
    sent_at = yield from Clock()
    listing = yield from list_objects(folder.prefix, after=folder.before(since))
    return sort_listing(folder, listing.objects, sent_at)


def open_log(
    layout: LogLayout,
    depth: LogDepth = LogDepth.FILES,
    version: int | None = None,
    before: LogState | None = None,
) -> Step[OpenedLog]:
    """Read the state of a table.

    :param depth: how much must be read; more may be read.
    :param version: a former version; ``None``: the newest.
    :param before: a former newest state. If only new entries have come since, only these are read.
    :raises SnapshotGoneError: the version's entries were cleaned.
    """

    def attempt() -> Step[OpenedLog]:
        if before is not None and version is None:
            again = yield from _open_again(layout.folder, before, depth)
            if again is not None:
                return again
        return (yield from _open(layout, depth, version))

    return (yield from _fresh(layout, attempt))


def open_as_columns(layout: LogLayout) -> Step[tuple[OpenedLog, CheckpointFiles]]:
    """Read the newest state of a table, with its live files as columns.

    :return: the state without files, and the files.
    """
    parts = CheckpointParts()

    def attempt() -> Step[OpenedLog]:
        nonlocal parts
        parts = CheckpointParts()
        return (yield from _open(layout, LogDepth.WHOLE, read=parts.read))

    opened = yield from _fresh(layout, attempt)
    files = parts.files(layout.folder, opened.state)
    state = replace(opened.state, files=None, count=None, size=None)
    return replace(opened, state=state), files


def _fresh(layout: LogLayout, attempt: Callable[[], Step[OpenedLog]]) -> Step[OpenedLog]:
    """Open a log, and repeat this if others clean it meanwhile.

    :raises SnapshotGoneError: they cleaned it during every attempt.
    :raises TableMismatchError: it has a feature that is not supported.
    """
    for _ in range(_TRIES):
        try:
            opened = yield from attempt()
        except _LogCleaned:
            continue
        except UnreadFeatureError as error:
            # The files cannot be read. So the protocol, which may name the feature, was not.
            raise TableMismatchError(
                f"The table cannot be read here: {error.feature} not supported. Nothing was "
                "changed.",
                key=error.key,
                remedy=error.remedy,
            ) from error
        layout.check_readable(opened.state)
        now = yield from Clock()
        if now - opened.listed_at < FRESH or not layout.cleaned_by_others(opened.state):
            return opened
    raise SnapshotGoneError(
        "Others cleaned the log again and again while it was read. Nothing was changed.",
        key=layout.folder.prefix,
        remedy="Run it again; if that does not help, lengthen delta.logRetentionDuration.",
    )


def _open(
    layout: LogLayout, depth: LogDepth, version: int | None = None, read: _PartReader | None = None
) -> Step[OpenedLog]:
    folder = layout.folder
    hint = yield from Get(folder.hint)
    since = read_hint(hint.body) if isinstance(hint, Found) else 0
    listed = yield from list_log(folder, since)
    if since and listed.newest_checkpoint(version) is None:
        listed = yield from list_log(folder)
    end = _end(listed, version)
    if end < 0:
        return OpenedLog(LogState(), listed.sent_at)
    # A checksum file never has a whole state, but it shows which entries were overwritten.
    first = yield from _by_checksum(folder, listed, end, depth)
    written_at = listed.entries[end].last_modified if end in listed.entries else float("inf")
    if first.state.exists and depth < LogDepth.WHOLE:
        return replace(first, written_at=written_at, listed=listed)
    whole = yield from _by_checkpoint(folder, listed, end, read or read_checkpoint)
    overwritten = tuple(sorted({*first.overwritten, *whole.overwritten}))
    return replace(whole, overwritten=overwritten, written_at=written_at, listed=listed)


def _open_again(folder: LogFolder, state: LogState, depth: LogDepth) -> Step[OpenedLog | None]:
    """Add the new entries to a former state.

    :return: ``None`` if the state lacks what ``depth`` demands, or if its log has changed in
        another way: it has a new checkpoint, or was cleaned, overwritten or made again."""
    if not (state.exists and state.version in state.etags and _has(state, depth)):
        return None
    listed = yield from list_log(folder, max(state.checkpoint, 0))
    since = range(state.version + 1, listed.end + 1)
    present = {version: it.etag for version, it in listed.entries.items()}
    base = listed.newest_checkpoint()
    if (
        (-1 if base is None else base) != state.checkpoint
        or any(present.get(version) != etag for version, etag in state.etags.items())
        or any(version not in present for version in since)
    ):
        return None
    entries, changed = yield from _read_listed(folder, listed, since)
    if changed:
        return None
    written_at = listed.entries[listed.end].last_modified
    return OpenedLog(replay(state, entries), listed.sent_at, (), written_at, listed)


def _has(state: LogState, depth: LogDepth) -> bool:
    """Return whether a state has all that an opening of this depth must read."""
    if depth is LogDepth.WHOLE and (state.removed is None or not state.all_transactions):
        return False
    return not _lacks_files(state, depth) and (depth < LogDepth.FILES or state.all_files)


def read_files(
    layout: LogLayout, opened: OpenedLog, wanted: Callable[[Partition], bool]
) -> Step[OpenedLog]:
    """Add the live files of some partitions to a state, from the checkpoint and the entries since.
    Sends no request if the state has its files already.

    :param wanted: returns whether the files of a partition are wanted. The state may have files of
        other partitions, too.
    :raises SnapshotGoneError: others have cleaned the log since.
    """
    found = yield from _with_files(layout, opened, wanted)
    return found or (yield from open_log(layout, LogDepth.FILES, opened.state.version))


def open_with_files(
    layout: LogLayout, wanted: Callable[[LogState], Callable[[Partition], bool]]
) -> Step[OpenedLog]:
    """Read the newest state of a table with the live files of some partitions. The files of other
    partitions are read only if there are at most :data:`MANY` in all.

    :param wanted: receives the state, which may have no files yet, and returns the function that
        says whether a partition's files are wanted.
    """
    opened = yield from open_log(layout, LogDepth.FEW)
    found = yield from _with_files(layout, opened, wanted(opened.state))
    return found or (yield from open_log(layout, LogDepth.FILES))


def _with_files(
    layout: LogLayout, opened: OpenedLog, wanted: Callable[[Partition], bool]
) -> Step[OpenedLog | None]:
    """Read files as :func:`read_files` does; ``None``: entries were cleaned or overwritten since
    the log was opened."""
    state, listed = opened.state, opened.listed
    if state.files is not None or listed is None or state.metadata is None:
        return opened
    choice = PartitionChoice(state.metadata, wanted)
    try:
        read = partial(read_checkpoint, choice=choice)
        found = yield from _by_checkpoint(layout.folder, listed, state.version, read)
    except _LogCleaned:
        return None
    if found.overwritten:
        return None
    layout.check_readable(found.state)
    return replace(opened, state=replace(state, files=found.state.files, all_files=False))


def _end(listed: ListedLog, version: int | None) -> int:
    newest = max(listed.end, listed.newest_checkpoint() or -1)
    if version is None:
        return newest
    if newest < 0:
        raise TableNotFoundError(
            "There is no Delta table here. Nothing was read.", remedy="Check the root."
        )
    if not 0 <= version <= newest:
        raise InvalidInputError(
            f"There is no version {version}: the table has versions 0 to {newest}. Nothing was "
            "read."
        )
    if version in listed.entries and listed.is_stale(version):
        raise _gone(version)
    return version


def _gone(version: int) -> SnapshotGoneError:
    return SnapshotGoneError(
        f"Version {version} is no longer in the log. Nothing was changed.",
        remedy="Ask for a newer version.",
    )


def read_entries(folder: LogFolder, versions: Iterable[int]) -> Step[tuple[LogEntry | None, ...]]:
    """Read entries in parallel; ``None`` stands for a missing one."""
    wanted = tuple(versions)
    found = yield from All(
        tuple(Get(folder.entry(version), most=ENTRY_BYTES) for version in wanted)
    )
    return tuple(
        None if isinstance(it, Absent) else read_entry(it, version)
        for version, it in zip(wanted, found, strict=True)
    )


def _read_listed(
    folder: LogFolder, listed: ListedLog, versions: range
) -> Step[tuple[list[LogEntry], tuple[int, ...]]]:
    """Read entries that a listing shows, and the versions that were overwritten since."""
    for version in versions:
        if version not in listed.entries:
            raise log_hole(version)
    found = yield from read_entries(folder, versions)
    entries = [entry for entry in found if entry is not None]
    if len(entries) < len(found):
        raise _LogCleaned
    changed = (it.version for it in entries if it.etag != listed.entries[it.version].etag)
    return entries, tuple(changed)


def _by_checksum(
    folder: LogFolder, listed: ListedLog, end: int, depth: LogDepth
) -> Step[OpenedLog]:
    """Read the state from the newest checksum file and the entries since. Its version is -1 if no
    checksum file can be used."""
    none = OpenedLog(LogState(), listed.sent_at)
    base = listed.newest_checkpoint(end)
    lowest = -1 if base is None else base
    at = max((v for v in listed.checksums if lowest <= v <= end), default=None)
    if (
        at is None
        or at not in listed.entries
        or any(version not in listed.entries for version in range(at + 1, end + 1))
    ):
        return none
    found, (entries, changed) = yield from All(
        (
            Get(folder.checksum(at), most=_STATE_BYTES),
            _read_listed(folder, listed, range(at + 1, end + 1)),
        )
    )
    checksum = read_checksum(found, at) if isinstance(found, Found) else None
    if checksum is None:
        return none
    overwritten = checksum.overwritten(listed)
    if not overwritten and checksum.etags is None:
        compared = yield from _compared(folder, checksum, at)
        if compared is None:
            return none
        overwritten = compared
    if overwritten or changed:
        return replace(none, overwritten=tuple(sorted({*overwritten, *changed})))
    if _lacks_files(checksum.state, depth):
        return none
    etags = {v: tag for v, tag in checksum.state.etags.items() if v > lowest} or {
        v: it.etag for v, it in listed.entries.items() if lowest < v <= at
    }
    state = replace(checksum.state, etags=etags, checkpoint=lowest)
    return OpenedLog(replay(state, entries), listed.sent_at)


def _lacks_files(state: LogState, depth: LogDepth) -> bool:
    """Return whether a state has no files, but an opening of this depth must read them."""
    most = {LogDepth.BLIND: -1, LogDepth.FEW: MANY}.get(depth)
    return state.files is None and (most is None or (state.count or 0) <= most)


def _compared(
    folder: LogFolder, checksum: ReadChecksum, version: int
) -> Step[tuple[int, ...] | None]:
    """Compare another engine's checksum file with its entry.

    :return: the version, if the entry is not the one of the checksum file; otherwise none.
        ``None``: they cannot be compared, since one of them does not name its transaction."""
    (entry,) = yield from read_entries(folder, [version])
    if entry is None:
        raise _LogCleaned
    if checksum.txn_id is None or entry.txn_id is None:
        return None
    return () if checksum.txn_id == entry.txn_id else (version,)


def _by_checkpoint(
    folder: LogFolder, listed: ListedLog, end: int, read: _PartReader
) -> Step[OpenedLog]:
    """Read a whole state, or the part that ``read`` selects.

    It uses the newest checkpoint that can be read, and the entries since; or all entries."""
    damage: RecordDamagedError | None = None
    while True:
        base = listed.newest_checkpoint(end)
        try:
            state = yield from _at_checkpoint(folder, listed, base, read)
        except RecordDamagedError as error:
            # A damaged checkpoint is not needed as long as the entries before it are there.
            damage = damage or error
            listed = yield from list_log(folder)
            older = {v: parts for v, parts in listed.checkpoints.items() if v < (base or 0)}
            listed = replace(listed, checkpoints=older)
            continue
        try:
            versions = range(state.version + 1, end + 1)
            entries, changed = yield from _read_listed(folder, listed, versions)
        except RecordDamagedError as error:
            _explain_hole(listed, end, damage)
            raise error
        return OpenedLog(replay(state, entries), listed.sent_at, changed)


def _explain_hole(listed: ListedLog, end: int, damage: RecordDamagedError | None) -> None:
    """Raise the cause of missing entries, if it is known."""
    if damage is not None:
        raise damage
    if any(version <= end for version in listed.foreign):
        raise TableMismatchError(
            "The table has the feature v2Checkpoint, which is not implemented. Nothing was read.",
            remedy="Read it with another engine, or set delta.checkpointPolicy=classic there.",
        )
    # A log is cleaned from its oldest entry on. Some entries right before a checkpoint may be left.
    oldest, newest = min(listed.entries, default=0), listed.newest_checkpoint()
    is_whole = all(version in listed.entries for version in range(oldest, end + 1))
    if newest is not None and (end < oldest or (oldest > 0 and end < newest and is_whole)):
        raise _gone(end)


def _at_checkpoint(
    folder: LogFolder, listed: ListedLog, base: int | None, read: _PartReader
) -> Step[LogState]:
    if base is None:
        return LogState()
    parts = listed.checkpoints[base]
    found = yield from All(tuple(Get(part.key, most=_STATE_BYTES) for part in parts))
    whole = [part for part in found if isinstance(part, Found)]
    if len(whole) < len(found):
        raise _LogCleaned
    work = Replay(LogState())
    # All parts together: actions may lie in any part.
    work.apply(action for part in whole for action in read(part.body, part.key))
    state = work.end(base, {}, base)
    if state.protocol is None or state.metadata is None:
        raise RecordDamagedError(
            "The checkpoint holds no protocol or no metaData. It was not used.", key=parts[0].key
        )
    return state
