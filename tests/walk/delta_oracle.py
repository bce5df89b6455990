"""The oracle of Delta tables: what each version holds, in plain Python, from what users asked for.

It decodes entries by itself, as another engine would, and reads the files that they name: what
lies there after each entry must be what the jobs before it were to make, in the order of entries.
"""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow.parquet as pq
from walk.oracle import Effect, Oracle, Row, State, Violation, Write, rows_of
from walk.ranked import RanksOf, ranks_after_write, unsure
from walk.readers import Seen, expected, short
from walk.runs_oracle import RunsOracle
from walk.settled import SettleConflict, Settled

from zero_rename.committer.format.layout import UNPARTITIONED

#: Operations of entries after which the rows are those that a user asked for; others change none.
_OF_USERS = ("WRITE", "MERGE", "DELETE", "RESTORE", "REPAIR")
#: What an entry changes of an oracle.
_CHANGED = (
    *("commits", "states", "shapes", "named", "runs", "columns", "kept", "again", "ranks"),
    *("settled", "live", "gone", "fenced", "lost", "accepted", "repaired"),
)
T = TypeVar("T")
_TYPES = {"integer": "int32", "long": "int64"}
_FENCE = "zero_rename.fence/"
_THERE = "s3a://cache/fast/bucket/wh/flights/"
_FAST_FOLDER = "_zero_rename/fast/s3%3A%2F%2Fcache%2Ffast/"


@dataclass
class RestoreVersion(Effect):
    """The table, or some of its partitions, becomes what it was after an entry.

    :param version: of the entry; ``within``: partitions; ``None``: all.
    """

    version: int = 0
    within: tuple[str, ...] | None = None

    def apply(self, oracle: Oracle, state: State) -> State:
        then = oracle.states[self.version + 1]
        if self.within is None:
            oracle.columns = oracle.shapes[self.version + 1]
            return then
        return _restored(state, then, self.within)


def _restored(now: Mapping[str, T], then: Mapping[str, T], within: Collection[str]) -> dict[str, T]:
    """What partitions have now, but for some of them, which get what they had then."""
    others = {name: it for name, it in now.items() if name not in within}
    return {**others, **{name: then[name] for name in within if name in then}}


@dataclass
class DeleteElsewhere(Effect):
    """Another engine takes one row out of a partition.

    :param partition: the row's, ``number`` its id.
    """

    partition: str = ""
    number: int = 0

    def apply(self, oracle: Oracle, state: State) -> State:
        left = [it for it in rows_of(state, self.partition) if it[0] != self.number]
        return oracle.rewritten(state, self.partition, self.job, tuple(left))


@dataclass
class UndoJob(Effect):
    """What a job has changed becomes what it was before, but for what others have taken away.

    :param undone: the job; ``shape``: the columns that the entry says are the table's.
    """

    undone: str = ""
    shape: dict[str, str] | None = None

    def apply(self, oracle: Oracle, state: State) -> State:
        at = oracle.commits.index(self.undone)
        before, after = oracle.states[at], oracle.states[at + 1]
        new = dict(state)
        for name in changed(before, after):
            if counted(state, name) == counted(after, name):
                new[name] = before.get(name, {})
        if self.shape not in (None, oracle.columns, oracle.shapes[at]):
            raise Violation(f"{self.job} undoes {self.undone}, and makes the columns {self.shape}")
        oracle.columns = self.shape or oracle.columns
        return new


def counted(state: State, partition: str) -> Counter[Row]:
    return Counter(rows_of(state, partition))


def changed(before: State, after: State) -> set[str]:
    """The partitions that do not hold the same rows."""
    names = {*before, *after}
    return {name for name in names if counted(before, name) != counted(after, name)}


@dataclass(frozen=True)
class Lost:
    """A committed job whose entry somebody has written over.

    :param version: the number of the entry.
    :param files: that it had added, by path.
    """

    version: int
    files: frozenset[str]


@dataclass
class LogOracle(RunsOracle):
    """All versions so far: entry ``N`` is commit ``N``, and makes state ``N + 1``.

    :param live: the live files' partitions, by path.
    :param gone: when files were removed, by path.
    :param fenced: jobs that may not commit any more.
    :param lost: committed jobs whose entries somebody has written over; ``accepted``: those that
        nobody commits again; ``repaired``: those that somebody has.
    """

    live: dict[str, str] = field(default_factory=dict)
    gone: dict[str, float] = field(default_factory=dict)
    fenced: set[str] = field(default_factory=set)
    lost: dict[str, Lost] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    repaired: set[str] = field(default_factory=set)
    _before: dict[str, Any] = field(default_factory=dict)

    def touched(self, number: int, replaced: bool = False) -> set[str]:
        found = changed(self.states[number], self.states[number + 1])
        effect = self.effects.get(self.commits[number])
        if not replaced or (isinstance(effect, Write) and effect.whole):
            return found
        if not isinstance(effect, Write):
            return set()  # An append goes by no merge, and by no restore.
        written = effect.rows if effect.mode == "replace" else ()
        return found & {*written, *effect.named}

    def left_by_run(self, idempotency_key: str) -> dict[str, set[int]]:
        """All that its jobs have written, but for partitions in which one has changed rows: their
        files hold rows of others, so whoever would take these out is refused."""
        gone: dict[str, set[int]] = defaultdict(set)
        for job in self.runs[idempotency_key]:
            effect, at = self.effects[job], self.commits.index(job)
            if isinstance(effect, Write):
                for name, rows in effect.rows.items():
                    gone[name] |= {number for number, _ in rows}
                continue
            for name in effect.partitions:
                if not rows_of(self.states[at], name):
                    gone[name] |= {number for number, _ in rows_of(self.states[at + 1], name)}
        return gone

    def rewritten(
        self,
        state: State,
        partition: str,
        job: str,
        rows: tuple[Row, ...],
        keeps: bool = False,
        first: frozenset[str] | None = None,
    ) -> State:
        """A partition that a job wrote anew: columns that the table has no more are gone."""
        self.again[job, partition] = frozenset()
        return {**state, partition: {job: self._kept(rows)}}

    def _kept(self, rows: Iterable[Row]) -> tuple[Row, ...]:
        now = self.columns or {}
        kept = ((it, frozenset(had for had in row if had[0] in now)) for it, row in rows)
        return tuple(kept)

    def entered(self, version: int, body: bytes, bodies: Mapping[str, bytes], now: float) -> None:
        """An entry came into the log.

        :param bodies: of all objects below the table, by path.
        :param now: by the store's clock.
        """
        if version != len(self.commits):
            raise Violation(f"entry {version} came after {len(self.commits) - 1}")
        self._before = {name: copy(getattr(self, name)) for name in _CHANGED}
        self._before["runs"] = {key: [*jobs] for key, jobs in self.runs.items()}
        entry = _Entry([json.loads(line) for line in body.splitlines() if line.strip()])
        for job in entry.fences:
            self._refuse(job in self.commits, f"{job} is committed, and is fenced")
            told = self.told.get(job) == "committed" and job not in {*self.lost, *self.accepted}
            self._refuse(told, f"{job} was told committed; fenced")
            self.accepted |= {job} & self.lost.keys()
            self.lost.pop(job, None)
            self.fenced.add(job)
        job = entry.job
        self._refuse(job in self.commits, f"{job} has committed a second time")
        self._refuse(job in self.fenced and not entry.fences, f"{job} commits after its fence")
        self._refuse(self.told.get(job) == "refused", f"{job} was told refused, and commits")
        self._refuse(entry.repairs != (job in self.lost), f"entry {version} repairs {job}, or not")
        self._apply(job, entry, version, bodies)
        if self.lost.pop(job, None) is not None:
            self.repaired.add(job)
        self.gone |= dict.fromkeys(entry.removed, now)
        self._replay(entry, version, bodies)

    def has_files_before(self, bodies: Mapping[str, bytes]) -> bool:
        """Whether all files of the state before the last entry are there."""
        return self._before["live"].keys() <= bodies.keys()

    def written_over(
        self, version: int, body: bytes, bodies: Mapping[str, bytes], now: float
    ) -> None:
        """Another engine has put its entry in the place of the last one, as it had not seen it.

        :param bodies, now: as of :meth:`entered`.
        """
        self._refuse(version != len(self.commits) - 1, f"entry {version} is not the last one")
        lost, added = self.commits[-1], frozenset(self.live.keys() - self._before["live"].keys())
        for name, it in self._before.items():
            setattr(self, name, it)
        records = (f"_delta_log/{version:020d}.crc", f"_zero_rename/entries/{lost}.json")
        if any(path in bodies for path in records):
            self.lost[lost] = Lost(version, added)
        else:
            self.accepted.add(lost)  # The store has not taken what tells of it.
        self.entered(version, body, bodies, now)

    def swept(self, path: str) -> None:
        """Another engine deletes a file that no version names."""
        self.lost = {job: replace(it, files=it.files - {path}) for job, it in self.lost.items()}

    def cleaned(self, version: int) -> None:
        """Another engine has deleted an entry, and what tells what it was before somebody wrote
        over it."""
        forgotten = {job for job, it in self.lost.items() if it.version == version}
        self.accepted |= forgotten
        self.lost = {job: it for job, it in self.lost.items() if job not in forgotten}

    def _refuse(self, wrong: bool, why: str) -> None:
        if wrong:
            raise Violation(why)

    def _apply(self, job: str, entry: _Entry, version: int, bodies: Mapping[str, bytes]) -> None:
        """What the entry's job was asked to do."""
        after, named = self.state, tuple(sorted(entry.partitions(self.live)))
        effect = self.effects.get(job)
        if entry.operation == "CREATE TABLE":
            self._refuse(self.columns is not None, f"entry {version} makes a table that is there")
            self.columns = entry.columns
        elif entry.operation in _OF_USERS:
            self._refuse(effect is None, f"entry {version} of {job} is nobody's")
            assert effect is not None
            effect.partitions = named
            if isinstance(effect, UndoJob):
                effect.shape = entry.columns
            if isinstance(effect, SettleConflict):
                there = {path: it for path, it in entry.files(self.live) if it == effect.partition}
                effect.lying = self.lying(bodies, there)
            self.meet(job, effect, named, entry.superseded)
            after = effect.apply(self, self.state)
        ranks = self._ranks_after(job, effect, entry, named)
        self.states.append(after)
        self.shapes.append(self.columns)
        self.named.append(named)
        self.commits.append(job)
        restored = named if entry.operation == "RESTORE" else ()
        self.note(job, effect, entry.settles, ranks, restored)

    def _ranks_after(
        self, job: str, effect: Effect | None, entry: _Entry, named: tuple[str, ...]
    ) -> RanksOf:
        """The ranks after an entry.

        :param named: the partitions that it is about.
        """
        now = self.ranks[-1]
        if job.startswith("engine-"):
            return unsure(now, named)
        if entry.operation not in _OF_USERS:
            return now
        if isinstance(effect, RestoreVersion):
            then = self.ranks[effect.version + 1]
            return then if effect.within is None else _restored(now, then, effect.within)
        if isinstance(effect, Write):
            return ranks_after_write(effect, now, named)
        return unsure(now, named)

    def _replay(self, entry: _Entry, version: int, bodies: Mapping[str, bytes]) -> None:
        """What lies there now is what was to be."""
        for path in entry.removed:
            self._refuse(path not in self.live, f"entry {version} removes {path}, which is no file")
            del self.live[path]
        for path, partition in entry.added.items():
            self._refuse(path in self.live, f"entry {version} adds {path}, which is there")
            self._refuse(path not in bodies, f"entry {version} adds {path}, which does not exist")
            self.live[path] = partition
        if entry.columns is not None and entry.columns != self.columns:
            raise Violation(
                f"entry {version} makes the columns {entry.columns}; they were to be {self.columns}"
            )
        found, wanted = self.lying(bodies, self.live), self.wanted(version)
        if found != wanted:
            missing, more = wanted - found, found - wanted
            raise Violation(
                f"after entry {version}, {entry.operation} of {entry.job}, there is too little: "
                f"{short(missing)}; too much: {short(more)}"
            )

    def lying(self, bodies: Mapping[str, bytes], files: Mapping[str, str]) -> Seen:
        """The rows in files, by the table's columns.

        :param files: their partitions, by path.
        """
        names = tuple(sorted(self.columns or ()))
        found: Seen = Counter()
        for path, partition in files.items():
            for row in _rows(bodies[path]):
                values = dict(row)
                found[
                    partition, values["id"] or 0, tuple((it, values.get(it)) for it in names)
                ] += 1
        return found

    def wanted(self, version: int) -> Seen:
        """The rows that a version is to have, by its columns."""
        return expected(self, self.states[version + 1], self.shapes[version + 1] or ())


class _Entry:
    """An entry, as its text says."""

    def __init__(self, actions: list[dict[str, Any]]) -> None:
        info: dict[str, Any] = next((it["commitInfo"] for it in actions if "commitInfo" in it), {})
        self.operation: str = info.get("operation", "")
        self.job: str = info.get("txnId", "")
        self.superseded = frozenset(info.get("zeroRename", {}).get("superseded") or ())
        self.repairs = "repairs" in info.get("zeroRename", {})
        said = info.get("zeroRename", {}).get("settles") or ()
        self.settles = dict(map(_settled, said))
        applications = [it["txn"]["appId"] for it in actions if "txn" in it]
        self.fences = [it.removeprefix(_FENCE) for it in applications if it.startswith(_FENCE)]
        self.added = {_path(it["add"]): _partition(it["add"]) for it in actions if "add" in it}
        removed = [it["remove"] for it in actions if "remove" in it]
        #: Those that say that a file is forgotten remove none.
        self.removed = [] if self.operation == "FORGET" else [_path(it) for it in removed]
        made = next((it["metaData"] for it in actions if "metaData" in it), None)
        self.columns = None if made is None else _columns(made)

    def files(self, live: Mapping[str, str]) -> list[tuple[str, str]]:
        """Those that are live after it, with their partitions."""
        left = [(path, it) for path, it in live.items() if path not in self.removed]
        return [*left, *self.added.items()]

    def partitions(self, live: Mapping[str, str]) -> set[str]:
        """Those in which it adds or removes files."""
        return {*self.added.values(), *(live[it] for it in self.removed if it in live)}


def _path(action: Mapping[str, Any]) -> str:
    """The path of a file in the store: what lies in the data root has a key below the table."""
    return unquote(action["path"]).replace(_THERE, _FAST_FOLDER)


def _partition(action: Mapping[str, Any]) -> str:
    values = action["partitionValues"]
    return "/".join(f"{name}={it}" for name, it in values.items()) or UNPARTITIONED


def _settled(said: Any) -> tuple[str, Settled]:
    place, stands, losers, _ = said
    name = f"day={place[0]}" if place else UNPARTITIONED
    return name, Settled(stands, frozenset(losers))


def _columns(metadata: Mapping[str, Any]) -> dict[str, str]:
    fields = json.loads(metadata["schemaString"])["fields"]
    return {it["name"]: _TYPES[it["type"]] for it in fields if it["name"] not in ("id", "day")}


@lru_cache(maxsize=4096)
def _rows(body: bytes) -> tuple[tuple[tuple[str, int | None], ...], ...]:
    read = pq.ParquetFile(io.BytesIO(body)).read(use_threads=False)
    return tuple(tuple(row.items()) for row in read.to_pylist())
