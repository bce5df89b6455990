"""Rerun: a run that loads again replaces what its earlier entries left in the table.

Each entry of a run names the run's entry before it, and the run's transaction has the number of the
last. So the files that these entries added are known, even if other engines rewrote them. If such a
file is live, the rerun's entry removes it. If it is not, the entries since show where its rows are:

=====================================  ==========  =========================================
an entry since                         the rows    from then on
=====================================  ==========  =========================================
of the run, removes the file           gone
replaces its partition, or all         gone
restores a version, removes the file   gone        unless they were ever rewritten
a checkpoint that copies it            its own     each copy is followed in the same way
a compaction that removes it           compacted   in its files, with rows of others
any other that removes it              rewritten   in files that do not name the run; also in other
                                                   partitions, if the entry may move rows
brings the file back                   its own     until an entry removes it again
restores a version                     unsure      if they were ever rewritten before
was cleaned                            unsure
=====================================  ==========  =========================================

Files with compacted rows are followed in the same way. The rerun's own entry takes a compaction
back (:mod:`.taking_back`), as long as its source files are kept. If an entry of the run was a
change of rows, its files have rows of others, too, which the rerun would remove; so the rerun is
refused unless these files are gone. It is also refused if other rows of the run may still be there,
since it would double them. In partitions that the rerun replaces nothing needs to be checked. A
restore that comes before the rerun's entry is a conflict, since it may bring back rows that are
gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..committer.errors import CommitConflictError
from ..committer.store.requests import Step
from .actions import AddFile, RemoveFile
from .change import RESTORE, REWRITES, RUN, LogChange
from .copies import copies_in
from .entries import LogEntry
from .judging import replaced_by
from .log_layout import LogLayout
from .opening import OpenedLog, read_entries
from .partitions import Partition
from .replay import LogState
from .scope import ALL, NONE, Scope
from .searching import find_run
from .taking_back import Compaction, TakenBack, compaction_of, take_back


@dataclass(frozen=True)
class RunPast:
    """The rows that the entries of a run have left in a state.

    :param version: the version of the run's last entry.
    :param live: paths of its live files.
    :param compacted: the change that takes back the compactions with its rows.
    """

    version: int
    live: frozenset[str]
    compacted: TakenBack = field(default_factory=TakenBack)

    def replaced_by(self, change: LogChange) -> LogChange:
        """Return a change that also removes these rows. Its base must not be after the state."""
        return replace(
            change,
            removes=change.removes | self.live | self.compacted.removes,
            returned=(*change.returned, *self.compacted.returned),
            former=self.version,
        )


def find_past(
    layout: LogLayout,
    opened: OpenedLog,
    run: str,
    job: str,
    now: int,
    within: Scope = ALL,
    replaced: Scope = NONE,
) -> Step[RunPast | None]:
    """Find the rows that the entries of a run have left; ``None``: the run has no entry.

    :param opened: a state with its live files.
    :param job: the job of the rerun.
    :param now: Unix milliseconds.
    :param within: consider only these partitions.
    :param replaced: the partitions that the rerun replaces; all rows there are removed anyway.
    :raises CommitConflictError: rows of the run may be in files of others.
    """
    state = opened.state
    done = yield from find_run(layout, state, run, job)
    if done is None:
        return None
    if replaced.covers(within):
        return RunPast(done.version, frozenset())  # Its entries may be cleaned.
    own = yield from _entries_of(layout, run, done.version)
    # Entries that take a compaction back also add files of other jobs.
    added = [
        (entry.version, add)
        for entry in own
        for add in entry.of(AddFile)
        if add.tags.get("job") == entry.job and within.has(state.partition(add))
    ]
    holders = [((version, add),) for version, add in added]
    compactions: dict[tuple[int, Partition | None], Compaction] = {}
    compacted: set[str] = set()
    if any(add.path not in state.live for _, add in added):
        first = own[-1].version + 1
        entries = yield from read_entries(layout.folder, range(first, state.version + 1))
        holders = _with_copies(added, entries)
        for version, add in _not_live(holders, state):
            if replaced.has(state.partition(add)):
                continue
            since = entries[version + 1 - first :]
            fate = _see_gone(run, add, since, {it.version for it in own}, state)
            compactions |= {(it.entry.version, it.partition): it for it in fate.compactions}
            if fate.compactions:
                compacted.add(add.path)
    paths = frozenset(add.path for each in holders for _, add in each)
    live = frozenset(paths & state.live.keys())
    _refuse_rows_of_others(run, own, holders, live | compacted, state, replaced)
    if not compactions:
        return RunPast(done.version, live)
    back = yield from take_back(layout, state, compactions.values(), paths, now)
    if back is None:
        by = ", ".join(sorted({str(it.entry.version) for it in compactions.values()}))
        raise _refused(
            run,
            f"the compaction of version {by} has written them again, and files that it was "
            "made of are gone, or about to be",
        )
    return RunPast(done.version, live, back)


def _refuse_rows_of_others(
    run: str,
    own: Iterable[LogEntry],
    holders: Iterable[tuple[tuple[int, AddFile], ...]],
    there: Collection[str],
    state: LogState,
    replaced: Scope,
) -> None:
    """Refuse a rerun if a change of rows by the run has rewritten rows of others in its files.

    :param own: the entries of the run.
    :param holders: the run's files, each with its copies.
    :param there: paths of the run's files whose rows are in the table, compacted or not.
    """
    rewriting = [it for it in own if it.operation in REWRITES or "rowChanges" in it.ours]
    changed = {
        (entry.version, place)
        for entry in rewriting
        for place in {state.partition(it) for it in entry.of(RemoveFile)}
    }
    # An updated row may have come from another partition.
    moved = {it.version for it in rewriting if it.of(RemoveFile) and _has_updated(it)}
    for same in holders:
        version, add = same[0]
        place = state.partition(add)
        if version not in moved and not {(version, place), (version, None)} & changed:
            continue
        if any(it.path in there for _, it in same) and not replaced.has(place):
            raise _refused(
                run,
                f"its change of rows, version {version}, wrote rows of others again, in the same "
                "files",
            )


def _has_updated(entry: LogEntry) -> bool:
    """Return whether a change of rows may have updated rows. Without counts it may have."""
    changes = entry.ours.get("rowChanges")
    if not isinstance(changes, dict):
        return True
    return any(not isinstance(it, dict) or it.get("updated", 1) for it in changes.values())


def _with_copies(
    added: Sequence[tuple[int, AddFile]], entries: Sequence[LogEntry | None]
) -> list[tuple[tuple[int, AddFile], ...]]:
    """Return each file together with all copies that checkpoints have made of it, since a restore
    may bring back any of them. Each has the version since which it has the rows.

    :param entries: the entries since the first one of the run.
    """
    copies: dict[str, list[tuple[int, AddFile]]] = defaultdict(list)
    for entry in entries:
        if entry is not None:
            for source, copy in copies_in(entry).items():
                copies[source].append((entry.version, copy))
    return [((version, add), *copies.get(add.path, ())) for version, add in added]


def _not_live(
    holders: Iterable[tuple[tuple[int, AddFile], ...]], state: LogState
) -> Iterator[tuple[int, AddFile]]:
    """Yield the files whose rows may be elsewhere: neither the file nor a copy of it is live."""
    for same in holders:
        if not any(add.path in state.live for _, add in same):
            yield from same


def _entries_of(layout: LogLayout, run: str, last: int) -> Step[list[LogEntry]]:
    """Read the entries of a run, the last one first.

    :raises CommitConflictError: one of them was cleaned or overwritten.
    """
    found: list[LogEntry] = []
    version: int | None = last
    while version is not None:
        (entry,) = yield from read_entries(layout.folder, [version])
        if entry is None:
            raise _refused(run, f"its entry {version} was cleaned from the log", _ONCE_MORE)
        if entry.transaction(RUN + run) is None:
            raise _refused(run, f"another writer has written over its entry {version}")
        found.append(entry)
        former = entry.ours.get("former")
        version = former if isinstance(former, int) and former < version else None
    return found


@dataclass
class _RowsFate:
    """The fate of the rows of a file that is not live, by the entries read so far.

    :param why: why the rows may still be there; empty: they are gone.
    :param rewritten: they were rewritten at some time, so a restore may bring them back.
    :param moved: a change of rows may have moved some of them to another partition.
    :param compactions: the compactions that have them now, in the files ``carriers``.
    """

    why: str = "no entry says who removed it"
    rewritten: bool = False
    moved: bool = False
    compactions: tuple[Compaction, ...] = ()
    carriers: frozenset[str] = frozenset()

    def lie_elsewhere(self, why: str) -> None:
        self.why, self.rewritten = why, True
        self.compactions, self.carriers = (), frozenset()

    def are_gone(self) -> None:
        self.why, self.rewritten = "", self.rewritten or bool(self.carriers)
        self.compactions, self.carriers = (), frozenset()


def _see_gone(
    run: str, add: AddFile, entries: Sequence[LogEntry | None], own: set[int], state: LogState
) -> _RowsFate:
    """Check that the rows of a file that is not live are gone, or only in compactions.

    :param entries: the entries after the file's own.
    :param own: the versions of the run's entries.
    :raises CommitConflictError: the rows may be in other files.
    """
    fate = _RowsFate()
    for entry in entries:
        if entry is None:
            raise _refused(run, f"entries since it wrote {add.path} were cleaned from the log")
        by = f"version {entry.version} of {f'job {entry.job}' if entry.job else 'another engine'}"
        removed = {it.path for it in entry.of(RemoveFile)}
        there = fate.carriers or {add.path}
        if any(it.path == add.path for it in entry.of(AddFile)):
            # A later restore may bring back the files that had the rows meanwhile.
            fate = _RowsFate(rewritten=fate.rewritten or bool(fate.carriers))
        elif add.path in copies_in(entry):
            fate.are_gone()  # The rows are in the copy, which is checked by itself.
        elif entry.operation == RESTORE:
            if fate.rewritten or fate.carriers:
                fate.lie_elsewhere(f"{by} may have brought them back")
            elif add.path in removed:
                fate.are_gone()
        elif (there <= removed and entry.version in own) or (
            _replaces(entry, add, there, state)
            and (not fate.moved or replaced_by(entry, state) == ALL)
        ):
            fate.are_gone()
        elif not there & removed:
            continue
        elif compaction := compaction_of(entry, state.partition(add), state):
            fate.why = f"{by} wrote the rows of {add.path} again"
            fate.compactions = (*fate.compactions, compaction)
            fate.carriers = frozenset((there - removed) | compaction.added)
        else:
            what = entry.operation or "an entry"
            fate.moved = fate.moved or _may_move(entry, add, state)
            fate.lie_elsewhere(f"{by} ({what}) wrote the rows of {add.path} again")
    if fate.why and not fate.compactions:
        raise _refused(run, fate.why)
    return fate


def _may_move(entry: LogEntry, add: AddFile, state: LogState) -> bool:
    """Return whether an entry that rewrote the rows of a file may have moved some of them into
    another partition."""
    elsewhere = any(state.partition(it) != state.partition(add) for it in entry.of(AddFile))
    if entry.job is None:
        return elsewhere and entry.operation != "DELETE"
    return elsewhere and _has_updated(entry)


def _replaces(entry: LogEntry, add: AddFile, there: Collection[str], state: LogState) -> bool:
    """Return whether an entry removes all rows of a file's partition, no matter in which files.

    :param there: paths of the files that have the file's rows.
    """
    if entry.job is None:
        parameters = entry.info.members.get("operationParameters")
        if not isinstance(parameters, dict) or parameters.get("predicate"):
            return False  # It rewrites files that match the predicate in part.
        # Without a predicate it removes the whole table, or the partitions of its new files.
        removes = any(it.path in there for it in entry.of(RemoveFile))
        return removes and replaced_by(entry, state).has(state.partition(add))
    return replaced_by(entry, state).has(state.partition(add))


#: What helps where the run has replaced partitions already.
_ONCE_MORE = (
    "If the run replaces all partitions that it has ever loaded, load once with "
    "on_repeat='append': the replace removes its former rows. Or skip what it has done before "
    "(on_repeat='skip')."
)


def _refused(
    run: str,
    why: str,
    remedy: str = "Let it replace the partitions that it loads, restore a version from before they "
    "were written again, or skip what it has done before (on_repeat='skip').",
) -> CommitConflictError:
    return CommitConflictError(
        f"The run {run} has loaded before, and its rows may still be there: {why}. Nothing was "
        "committed.",
        remedy=remedy,
    )
