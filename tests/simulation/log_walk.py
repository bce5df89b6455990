"""Random walks of jobs over one log: any request may be lost, late, or its sender's last.

A walk is a store in memory and a handful of processes, each a step of the product's own code. At
every turn one of them sends its next request; the answer may be lost, though the request is
carried out now, later, or never; a process may sleep for any time, or die. After every write the
invariants hold:

* the log has no hole and an entry once written is never another;
* no job commits twice, and none after its fence; no run commits twice;
* whoever was told *committed* is in the log, whoever was told *refused* is not and will not be;
* every file that the log says is live is an object, at every moment;
* a replace removes all that was live in its partitions, or says so; what was read stands;
* no row is there twice, whatever others made of its file; nor is one of a run that loads again;
* a restore or an undoing brings back the rows that were there, wherever they lie by now;
* no run replaces rows of a newer one, or adds to what a newer one has put there, if it gives way;
* no run writes where a conflict was settled against it, while the settlement stands;
* an opening's state, however it came about, is the replay of all entries.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from simulation.decoded import log_read_once

from support.log_tables import COLUMNS, LAYOUT, LOG, NOW, base_of, day, file_of, first, ids
from support.memory_store import ManualClock, MemoryStore, flatten
from zero_rename.committer.errors import (
    OtherJobError,
    OutcomeUnknownError,
    RefusedError,
    UnfinishedCommitError,
    ZeroRenameError,
)
from zero_rename.committer.format.records.partition_ranks import NO_RANKS, PartitionRanks
from zero_rename.committer.format.run_rank import RunRank
from zero_rename.committer.format.settling import SettledRuns, Settling
from zero_rename.committer.store import requests as s
from zero_rename.log import checksum, opening
from zero_rename.log.actions import (
    AppTransaction,
    CommitInfo,
    LogMetadata,
    LogProtocol,
    RemoveFile,
    read_actions,
    write_actions,
)
from zero_rename.log.change import CHECKPOINT, COPY_OF, FENCE, RUN, SETTLE, LogChange, Overtaking
from zero_rename.log.checkpointing import make_checkpoint
from zero_rename.log.committing import EntryCommitted, commit_change
from zero_rename.log.copies import copy_of
from zero_rename.log.entries import LogEntry
from zero_rename.log.job_steps import (
    abandon_job,
    commit_job,
    finish_job,
    open_log_job,
    recover_job,
    withdraw_job,
)
from zero_rename.log.opening import LogDepth, open_log
from zero_rename.log.partitions import Partition
from zero_rename.log.publishing import hand_over_job, publish_job
from zero_rename.log.purging import purge_log
from zero_rename.log.ranks import LogRanks, ranks_in
from zero_rename.log.replay import LogState, replay
from zero_rename.log.rerunning import find_past
from zero_rename.log.restoring import plan_restore
from zero_rename.log.scope import ALL, Scope
from zero_rename.log.searching import RunDone
from zero_rename.log.settling import settled_in
from zero_rename.log.undoing import plan_undo

#: Requests of a walk after which it is stuck.
_TURNS = 6_000


class Broken(AssertionError):
    """An invariant that did not hold."""


@dataclass
class Walk:
    """A walk under way.

    :param told: what processes were told, by process: the job and *committed* or *refused*.
    :param shadow: every entry that was ever written, by version.
    """

    seed: int
    properties: dict[str, str] = field(default_factory=lambda: dict(COLUMNS.properties))
    hours: bool = False

    def __post_init__(self) -> None:
        self.rnd = random.Random(self.seed)
        #: What the last opening has shown, which a process of every other walk may know.
        self.memory = random.Random(-self.seed)
        self.seen: LogState | None = None
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.told: dict[str, tuple[str, str]] = {}
        self.shadow: dict[int, LogEntry] = {}
        self.state = LogState()
        self.fenced: set[str] = set()
        self.committed: dict[str, LogEntry] = {}
        self.runs: dict[str, str] = {}
        self.changes: dict[str, LogChange] = {}
        self.states: dict[int, LogState] = {-1: LogState()}
        #: How new the rows of partitions are, by version and partition.
        self.ranks: dict[int, dict[Partition, PartitionRanks]] = {-1: {}}
        #: The settlements that stand, by version and partition.
        self.settled: dict[int, dict[Partition, SettledRuns]] = {-1: {}}
        #: Of restores, the version that comes back.
        self.restores: dict[str, int] = {}
        #: Of restores, the files that nothing brings back.
        self.lost: dict[str, tuple[str, ...]] = {}
        #: Of undoings, the version that they undo.
        self.undoes: dict[str, int] = {}
        #: Of jobs, by their first: the one that they took.
        self.ids: dict[str, str] = {}
        #: By file: the run or the job of each of its rows.
        self.rows: dict[str, list[str]] = {}
        #: By job: the rows that it has written.
        self.written: dict[str, int] = {}

    @property
    def now(self) -> int:
        return int(self.clock() * 1000)

    # What happens to requests.

    def alone(self, work: Any) -> Any:
        """Run a step with nobody beside it."""
        step, answer = flatten(work), None
        while True:
            try:
                request = step.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = self.carry_out(request)

    def carry_out(self, request: Any) -> Any:
        if isinstance(request, s.Clock):
            return self.clock()
        if isinstance(request, s.Wait):
            return None
        answer = self.store.apply(request)
        if isinstance(request, s.Put | s.PutFile | s.Delete | s.DeleteMany):
            self.check(request)
        return answer

    def drive(self, processes: dict[str, Any], lost: float = 0.12, dies: float = 0.004) -> None:
        steps = {name: flatten(work) for name, work in processes.items()}
        answers: dict[str, Any] = dict.fromkeys(steps)
        late: list[Any] = []
        weight = {name: self.rnd.choice([0.02, 0.2, 1, 3]) for name in steps}
        for _ in range(_TURNS):
            if not steps:
                break
            if late and self.rnd.random() < 0.15:
                self.carry_out(late.pop(self.rnd.randrange(len(late))))
            if self.rnd.random() < 0.08:
                weight = {name: self.rnd.choice([0.01, 0.2, 1, 3]) for name in steps}
            if self.hours and self.rnd.random() < 0.05:
                self.clock.advance(self.rnd.choice([600, 2_000, 4_000]))
            elif self.rnd.random() < 0.3:
                self.clock.advance(1)
            name = self.rnd.choices(list(steps), [weight[it] for it in steps])[0]
            if self.rnd.random() < dies:
                steps.pop(name).close()
                continue
            try:
                request = steps[name].send(answers[name])
            except StopIteration:
                del steps[name]
                continue
            answers[name] = self._answer(request, late, lost)
        else:
            raise Broken("the walk does not end")
        for request in late:
            self.carry_out(request)

    def _answer(self, request: Any, late: list[Any], lost: float) -> Any:
        loses = isinstance(request, s.Put | s.Delete | s.DeleteMany)
        if not loses or self.rnd.random() >= lost:
            if isinstance(request, s.Put) and request.if_none_match and self.rnd.random() < 0.03:
                return s.Refused("ConditionalRequestConflict")
            return self.carry_out(request)
        kind = self.rnd.random()
        if kind < 0.5:
            self.carry_out(request)
        elif kind < 0.75 and isinstance(request, s.Put):
            late.append(request)  # A late deletion of a key that is never written again is none.
        return s.Unknown("time-out")

    # What must hold.

    def check(self, request: Any) -> None:
        key = getattr(request, "key", "")
        if key.startswith(LOG.prefix) and key.endswith(".json"):
            self._check_log()
        if isinstance(request, s.Delete | s.DeleteMany):
            self._check_files()

    def _check_log(self) -> None:
        for key in self.store.keys(LOG.prefix):
            if not key.endswith(".json"):
                continue
            version, found = int(key[-25:-5]), self.store.objects[key]
            entry = LogEntry(version, found.etag, found.last_modified, ())
            if version in self.shadow:
                if self.shadow[version].etag != entry.etag:
                    self._void(version)
                continue
            if version != len(self.shadow):
                raise Broken(f"entry {version} leaves a hole")
            entry = LogEntry(
                version, found.etag, found.last_modified, read_actions(found.body, key)
            )
            self.shadow[version] = entry
            self._check_entry(entry)
            self.state = replay(self.state, [entry])
            self.states[version] = self.state
            self._check_rows(entry)
            self.ranks[version] = self._ranks_after(entry)
            self._check_ranks(self.ranks[version])
            self.settled[version] = self._settled_after(entry)
            if {it: one.runs for it, one in settled_in(self.state).items()} != self.settled[
                version
            ]:
                raise Broken("the log tells other settlements than stand")

    def _check_rows(self, entry: LogEntry) -> None:
        """Tell of a run that is there twice, and of a rerun that changes rows of others."""
        rows = self._rows(self.state)
        if rows.count("daily") > 1:
            raise Broken("rows of a run are there twice")
        if any(count > self.written.get(row, count) for row, count in Counter(rows).items()):
            raise Broken("rows of a job are there twice")
        if (version := self.restores.get(entry.job or "")) is not None:
            lost = self.lost[entry.job or ""]
            if not lost and rows != self._rows(self.states[version]):
                raise Broken("a restore does not bring back what was there")
        self._check_undone(entry)
        change = self.changes.get(entry.job or "")
        if change is not None and change.replaced:
            own = {it.path for it in change.adds}
            there = (it for it in self.state.live.values() if it.path not in own)
            if any(change.replaced.has(self.state.partition(it)) for it in there):
                raise Broken("a replace leaves files in its partitions")
        if change is None or change.former is None or change.replaced:
            return
        before = self._rows(self.states[entry.version - 1])
        if [it for it in rows if it != "daily"] != [it for it in before if it != "daily"]:
            raise Broken("a rerun changes rows of others")

    def _check_undone(self, entry: LogEntry) -> None:
        """Tell of an undoing that takes rows of others away, or does not bring back what was."""
        version = self.undoes.get(entry.job or "")
        if version is None:
            return
        then, before = self.states[version - 1], self.states[entry.version - 1]
        scope = self.changes[entry.job or ""].reads
        for place in {before.partition(it) for it in entry.changes}:
            if not scope.has(place):
                raise Broken("an undoing changes a partition that its job did not")
            if self._rows(before, place) != self._rows(self.states[version], place):
                raise Broken("an undoing takes away what came after its job")
            if self._rows(self.state, place) != self._rows(then, place):
                raise Broken("an undoing does not bring back what was there")

    def _rows(self, state: LogState, place: Partition | None = None) -> list[str]:
        files = (it for it in state.live.values() if place in (None, state.partition(it)))
        return sorted(row for it in files for row in self.rows.get(it.path, ()))

    def _ranks_after(self, entry: LogEntry) -> dict[Partition, PartitionRanks]:
        """How new the rows are after an entry: told by the changes that jobs asked for, and not by
        what their entries say."""
        before, state = self.ranks[entry.version - 1], self.state
        change = self.changes.get(entry.job or "")
        if (version := self.restores.get(entry.job or "")) is not None:
            return self.ranks[version]
        if change is None or not change.changes_data:
            return before
        filled = {place for it in change.adds if (place := state.partition(it)) is not None}
        after = dict(before)
        for place in filled | change.replaced.partitions:
            rank, replaces = change.ranks.of(place), change.replaced.has(place)
            its = before.get(place, NO_RANKS)
            gives_way = change.overtaking is Overtaking.NEWEST_RUN
            if gives_way and its.supersede(rank, replaces):
                raise Broken("a run has committed over a newer one")
            after[place] = its.after(rank, replaces)
        return after

    def _check_ranks(self, known: dict[Partition, PartitionRanks]) -> None:
        """Tell of a partition whose ranks the log tells otherwise; those of settlements aside."""
        if settled_in(self.state) or checksum.RANKED == 1:
            return
        told = ranks_in(self.state, ALL)
        if {k: it for k, it in told.items() if it != NO_RANKS} != {
            k: it for k, it in known.items() if it != NO_RANKS
        }:
            raise Broken("the log tells other ranks of a partition than its runs have")

    def _settled_after(self, entry: LogEntry) -> dict[Partition, SettledRuns]:
        """The settlements that stand after an entry, by the changes that jobs asked for."""
        before, job = self.settled[entry.version - 1], entry.job or ""
        if job in self.restores:
            changed = {self.state.partition(it) for it in entry.changes}
            return {place: it for place, it in before.items() if place not in changed}
        change = self.changes.get(job)
        if change is None:
            return before
        filled = {self.state.partition(it) for it in change.adds if change.changes_data}
        after = dict(before)
        for place, runs in before.items():
            writes = change.replaced.has(place) or place in filled
            is_held = change.overtaking is not Overtaking.LAST_WINS and place not in change.settles
            if writes and is_held and change.run in runs.losers:
                raise Broken("a run has written where a conflict was settled against it")
            if change.replaced.has(place) and change.run != runs.stands:
                del after[place]
        return after | {place: it.runs for place, it in change.settles.items()}

    def _void(self, version: int) -> None:
        """An entry in a number that others have cleaned: nobody may have been told of it."""
        if LAYOUT.cleaned_by_others(self.state):
            return
        raise Broken(f"entry {version} was overwritten")

    def _check_entry(self, entry: LogEntry) -> None:
        for transaction in entry.of(AppTransaction):
            app = transaction.app
            if app.startswith(FENCE):
                if app.removeprefix(FENCE) in self.committed:
                    raise Broken("a job was fenced after it committed")
                self.fenced.add(app.removeprefix(FENCE))
            if app.startswith(RUN):
                if self.runs.get(app) and entry.ours.get("former") is None:
                    raise Broken("a run committed twice")
                self.runs[app] = entry.job or ""
        job = entry.job
        if job is None:
            return
        if job in self.committed:
            raise Broken("a job committed twice")
        if job in self.fenced:
            raise Broken("a job committed after its fence")
        self.committed[job] = entry
        if (change := self.changes.get(job)) is not None:
            self._check_conflict(change, entry)

    def _check_conflict(self, change: LogChange, entry: LogEntry) -> None:
        """Tell whether the job may stand after all that came since its base."""
        between = range(change.base.version + 1, entry.version)
        for version in between:
            other, before = self.shadow[version], self.states[version - 1]
            # Partitions of a table that is made have the columns that it is made with.
            before = replace(before, metadata=before.metadata or self.states[version].metadata)
            changed = {before.partition(it) for it in other.changes}
            fails = change.overtaking is Overtaking.FAIL
            if any(change.reads.has(it) for it in changed):
                raise Broken("what a job has read changed before its entry")
            if fails and any(change.replaced.has(it) for it in changed):
                raise Broken("a replace has overwritten what came since its base")
            other_change = self.changes.get(other.job or "")
            if other_change and change.settles.keys() & other_change.settles.keys():
                raise Broken("a conflict was settled over a settlement that came since its base")
            if other_change and fails and change.isolated and other_change.replaced:
                added = {self.states[entry.version - 1].partition(it) for it in change.adds}
                if any(other_change.replaced.has(it) for it in added):
                    raise Broken("an append outlives a replace of its partition")
        before = self.states[entry.version - 1]
        named = {it.path for it in entry.of(RemoveFile)}
        if change.replaced:
            live = {p for p, it in before.live.items() if change.replaced.has(before.partition(it))}
            if live - named:
                raise Broken("a replace leaves files that were live")

    def _check_files(self) -> None:
        for path in self.state.live:
            if LAYOUT.root.key_of(path) not in self.store.objects:
                raise Broken(f"the log names {path}, which is not there")

    def check_end(self) -> None:
        """What must hold once all is over and somebody has recovered the dead."""
        for who, (job, said) in self.told.items():
            if (said == "committed") != (job in self.committed) and said != "unknown":
                raise Broken(f"{who} was told {said}, and the log says otherwise")
        for key in self.store.keys(LAYOUT.control + "open/"):
            job = key.rpartition("/")[2].removesuffix(".json")
            try:
                self.alone(recover_job(LAYOUT, job, f"last{self.rnd.random()}", self.now))
            except OutcomeUnknownError:
                if not LAYOUT.cleaned_by_others(self.state):
                    raise
        left = self.store.keys(LAYOUT.control + "open/")
        if left and not LAYOUT.cleaned_by_others(self.state):
            raise Broken("an open record is left")
        self._check_files()
        for depth in LogDepth:
            opened = self.alone(open_log(LAYOUT, depth))
            if opened.overwritten:
                raise Broken("an overwritten entry is reported, and there is none")
            self._check_state(opened.state)

    def _check_state(self, seen: LogState) -> None:
        wanted = self.state
        same = (seen.version, seen.protocol, seen.metadata) == (
            wanted.version,
            wanted.protocol,
            wanted.metadata,
        )
        known = dict(wanted.transactions)
        if not seen.all_transactions:
            known = {it: known[it] for it in seen.transactions}
        if not same or dict(seen.transactions) != known:
            raise Broken("an opening's state is not the replay of all entries")
        if seen.files is not None and set(seen.files) != set(wanted.live):
            raise Broken("an opening's files are not those of the replay")
        if seen.count is not None and seen.count != len(wanted.live):
            raise Broken("a checksum file counts wrong")

    # Who takes part.

    def make(self) -> None:
        metadata = LogMetadata(COLUMNS.id, COLUMNS.schema, ("day",), self.properties)
        opened = self.alone(open_log(LAYOUT))
        done = self.alone(commit_change(LAYOUT, opened, first(metadata=metadata), self.now))
        self.alone(finish_job(LAYOUT, "create", done))

    def tell(self, who: str, job: str, work: Any) -> Any:
        """Run a process's step and note what it was told of a job."""
        said = ""
        try:
            done = yield from work
        except UnfinishedCommitError:
            said = "committed"
        except OutcomeUnknownError:
            said = "unknown"
        except RefusedError:
            said = "refused"
        except ZeroRenameError:
            said = "unknown"
        else:
            if isinstance(done, EntryCommitted):
                said = "committed"
            elif isinstance(done, RunDone):
                said = "refused"
        if said:
            self.told[who] = (self.ids.get(job, job), said)

    def _job(self, job: str, days: list[str], depth: LogDepth | None = None, **more: Any) -> Any:
        if depth is None:
            depth = LogDepth.FILES if self.rnd.random() < 0.5 else LogDepth.BLIND
        remembers = self.seed % 2 and self.memory.random() < 0.5
        before = self.seen if remembers else None
        opened = yield from open_log_job(LAYOUT, ids(job), {}, depth, more.get("run"), before)
        self.seen = opened.log.state
        self.ids[job] = job = opened.job
        files = tuple(file_of(job, at, it) for at, it in enumerate(days))
        for add in files:
            yield s.PutFile(LAYOUT.root.key_of(add.path), b"parquet")
            self.rows[add.path] = [more.get("run") or job]
        if more.get("run") is None:
            self.written[job] = len(files)
        change = LogChange(job, base_of(opened.log.state), COLUMNS, files, **more)
        if not opened.log.state.exists:
            made = replace(COLUMNS, id=f"table-{job}", properties=self.properties)
            change = replace(change, metadata=made, protocol=LogProtocol(), joins=True)
        self.changes[job] = change
        return opened, change

    def writer(self, job: str, days: list[str], **more: Any) -> Any:
        """A job that its own driver commits."""

        def work() -> Any:
            opened, change = yield from self._job(job, days, **more)
            try:
                done = yield from commit_change(LAYOUT, opened.log, change, self.now)
            except RefusedError:
                yield from abandon_job(LAYOUT, change.job)
                raise
            if isinstance(done, RunDone):
                self.told[job] = (change.job, "refused")
                yield from abandon_job(LAYOUT, change.job)
                return done
            self.told[job] = (change.job, "committed")
            yield from finish_job(LAYOUT, change.job, done)
            return done

        return self.tell(job, job, work())

    def rerunner(self, job: str, **how: Any) -> Any:
        """A run that takes the place of what its earlier tries left."""

        def work() -> Any:
            given: dict[str, Any] = {"depth": LogDepth.FILES, "run": "daily", **how}
            opened, change = yield from self._job(job, ["1"], **given)
            try:
                asks = ("daily", change.job, self.now, ALL, change.replaced)
                past = yield from find_past(LAYOUT, opened.log, *asks)
                again = change if past is None else past.replaced_by(change)
                self.changes[change.job] = again
                done = yield from commit_change(LAYOUT, opened.log, again, self.now)
            except RefusedError:
                yield from abandon_job(LAYOUT, change.job)
                raise
            said = "refused" if isinstance(done, RunDone) else "committed"
            self.told[job] = (change.job, said)
            yield from finish_job(LAYOUT, change.job, done)
            return done

        return self.tell(job, job, work())

    def settler(self, job: str, runs: list[str]) -> Any:
        """Settles a conflict of runs over a partition by the rows that are there."""
        stands, *losers = self.rnd.sample(runs, self.rnd.choice([2, 3]))
        place = next(iter(day(self.rnd.choice(["1", "2"])).partitions))
        said = {place: Settling(SettledRuns(stands, tuple(losers)))}
        told = {"reads": Scope(frozenset([place])), "operation": SETTLE, "settles": said}
        return self.writer(job, [], **told)

    def handing_over(self, job: str, days: list[str], gives_up: bool) -> Any:
        """A driver that hands its job over, and publishes it or gives it up."""

        def work() -> Any:
            opened, change = yield from self._job(job, days)
            yield from hand_over_job(LAYOUT, change)
            if not gives_up:
                return (yield from publish_job(LAYOUT, change.job, self.now))
            found = yield from withdraw_job(
                LAYOUT, change.job, opened.opened_at, f"{job}-own", self.now
            )
            self.told[job] = (change.job, "committed" if found.entry else "refused")
            return None

        return self.tell(job, job, work())

    def publisher(self, job: str, who: str) -> Any:
        return self.tell(who, job, publish_job(LAYOUT, job, self.now))

    def recoverer(self, who: str) -> Any:
        """Takes every open job for dead."""
        page = yield s.ListObjects(LAYOUT.control + "open/")
        for at, item in enumerate(page.objects):
            job = item.key.rpartition("/")[2].removesuffix(".json")

            def work(job: str = job, at: int = at) -> Any:
                try:
                    found = yield from recover_job(LAYOUT, job, f"{who}{at}", self.now)
                except OtherJobError:
                    return  # Without a log no job can be fenced: recovery leaves it as it is.
                if found is not None:
                    self.told[f"{who}{at}"] = (job, "committed" if found.entry else "refused")

            yield from self.tell(f"{who}{at}-", job, work())

    def maintenance(self, who: str, *works: Callable[[], Any]) -> Any:
        """Steps that may fail without harm, again and again."""
        for work in works:
            try:
                yield from work()
            except ZeroRenameError:
                continue

    def checkpointer(self, who: str) -> Any:
        return self.maintenance(who, *[lambda: make_checkpoint(LAYOUT, self.now)] * 3)

    def purger(self, who: str) -> Any:
        works = [lambda at=at: purge_log(LAYOUT, f"{who}-{at}", self.now) for at in range(3)]
        return self.maintenance(who, *works)

    def restorer(self, job: str) -> Any:
        def work() -> Any:
            page = yield s.ListObjects(LOG.prefix)
            versions = [int(it.key[-25:-5]) for it in page.objects if it.key.endswith(".json")]
            yield s.Put(f"{LAYOUT.control}open/{job}.json", b"{}")
            version = self.rnd.choice(versions)
            plan = yield from plan_restore(LAYOUT, job, version, self.now, {})
            self.changes[job] = plan.change
            self.restores[job], self.lost[job] = version, plan.lost
            done = yield from commit_change(LAYOUT, plan.opened, plan.change, self.now)
            yield from finish_job(LAYOUT, job, done)
            return done

        return self.tell(job, job, work())

    def undoer(self, job: str) -> Any:
        """Undoes a job that has committed."""

        def work() -> Any:
            version = self.rnd.randrange(1, len(self.shadow)) if len(self.shadow) > 1 else 0
            undone = self.shadow[version].job
            if undone is None or version == 0:
                return None
            yield s.Put(f"{LAYOUT.control}open/{job}.json", b"{}")
            try:
                plan = (yield from plan_undo(LAYOUT, job, undone, version, self.now, {})).restore
                if plan.lost or not plan.is_needed:
                    yield from abandon_job(LAYOUT, job)
                    return None
                self.changes[job] = plan.change
                self.undoes[job] = version
                done = yield from commit_change(LAYOUT, plan.opened, plan.change, self.now)
            except RefusedError:
                yield from abandon_job(LAYOUT, job)
                raise
            yield from finish_job(LAYOUT, job, done)
            return done

        return self.tell(job, job, work())

    def compactor(self, job: str) -> Any:
        """A job of this package that writes the files of a partition again, as one."""

        def work() -> Any:
            opened, change = yield from self._job(job, ["1"], depth=LogDepth.FILES)
            live = opened.log.state.live.values()
            files = frozenset(it.path for it in live if it.values["day"] == "1")
            self.rows[change.adds[0].path] = [row for it in sorted(files) for row in self.rows[it]]
            if not files:
                yield from abandon_job(LAYOUT, change.job)
                return None
            whole = {"removes": files, "reads": day("1"), "changes_data": False}
            change = replace(change, operation="OPTIMIZE", **whole)
            self.changes[change.job] = change
            return (yield from commit_job(LAYOUT, opened.log, change, self.now))

        return self.tell(job, job, work())

    def editor(self, job: str) -> Any:
        """A merge: it writes the files of a partition again, with a row of its own."""

        def work() -> Any:
            opened, change = yield from self._job(job, ["1"], depth=LogDepth.FILES)
            live = opened.log.state.live.values()
            files = frozenset(it.path for it in live if it.values["day"] == "1")
            self.rows[change.adds[0].path] += [row for it in sorted(files) for row in self.rows[it]]
            change = replace(change, operation="MERGE", removes=files, reads=day("1"))
            self.changes[change.job] = change
            return (yield from commit_job(LAYOUT, opened.log, change, self.now))

        return self.tell(job, job, work())

    def mover(self, job: str) -> Any:
        """Puts copies in place of a partition's files, as a checkpoint of the fast tier does."""

        def work() -> Any:
            opened = yield from open_log_job(LAYOUT, ids(job), {}, LogDepth.FILES)
            self.ids[job], place = opened.job, self.rnd.choice(["1", "2"])
            live = opened.log.state.live.values()
            files = [it for it in live if it.values["day"] == place and COPY_OF not in it.tags]
            if not files:
                yield from abandon_job(LAYOUT, opened.job)
                return None
            copies = [copy_of(it, f"data/{opened.job}/{at}.parquet") for at, it in enumerate(files)]
            for source, copy in zip(files, copies, strict=True):
                yield s.PutFile(LAYOUT.root.key_of(copy.path), b"parquet")
                self.rows[copy.path] = self.rows[source.path]
            sources = frozenset(it.path for it in files)
            moved = {"adds": tuple(copies), "removes": sources, "changes_data": False}
            change = LogChange(opened.job, base_of(opened.log.state), operation=CHECKPOINT, **moved)
            self.changes[opened.job] = change
            return (yield from commit_job(LAYOUT, opened.log, change, self.now))

        return self.tell(job, job, work())

    def optimizer(self, name: str) -> Any:
        """Another engine: it commits by condition, compacts a partition or changes rows of it,
        writes checkpoints."""
        operation = self.rnd.choice(["OPTIMIZE", "OPTIMIZE", "UPDATE"])
        for _ in range(2):
            opened = yield from open_log(LAYOUT, LogDepth.WHOLE)
            state = opened.state
            files = [it for it in state.live.values() if it.values["day"] == "1"]
            if len(files) > 1 and name not in self.committed:
                made = file_of(name, state.version, "1")
                yield s.PutFile(LAYOUT.root.key_of(made.path), b"parquet")
                self.rows[made.path] = [row for it in files for row in self.rows[it.path]]
                actions = [
                    CommitInfo({"operation": operation, "txnId": f"{name}{state.version}"}),
                    *(_tombstone(it.path, self.now, it.values) for it in files),
                    made.__class__(made.path, made.values, 7, NOW, False),
                ]
                key = LOG.entry(state.version + 1)
                yield s.Put(key, write_actions(actions), if_none_match=True)
            yield from make_checkpoint(LAYOUT, self.now)

    def cleaner(self, name: str) -> Any:
        """Another engine: it deletes entries over an hour old below a checkpoint."""
        for _ in range(3):
            page = yield s.ListObjects(LOG.prefix)
            points = [it for it in page.objects if it.key.endswith(".checkpoint.parquet")]
            if not points:
                continue
            version = int(points[-1].key.rpartition("/")[2][:20])
            for it in page.objects:
                number = it.key.rpartition("/")[2][:20]
                old = self.clock() - it.last_modified > 3_600
                if number.isdigit() and int(number) < version and old:
                    yield s.Delete(it.key)


def _tombstone(path: str, at: int, values: Any) -> Any:
    return RemoveFile(path, at, False, values, 7)


def of_any(rnd: random.Random) -> dict[str, Any]:
    """What a job does besides adding files."""
    days = [rnd.choice(["1", "2"])]
    kind = rnd.randrange(6)
    if kind == 0:
        return {"days": days, "replaced": day(*days)}
    if kind == 1:
        return {"days": days, "replaced": day(*days), "overtaking": Overtaking.LAST_WINS}
    if kind == 2:
        return {"days": days, "reads": day("1")}
    if kind == 3:
        return {"days": days, "reads": ALL}
    if kind == 4:
        return {"days": days, "run": "daily"}
    return {"days": ["1", "2"]}


# The worlds.


def writers(seed: int) -> Walk:
    """Jobs of all kinds, recoverers, checkpoints, another engine's compactions."""
    walk = Walk(seed)
    walk.make()
    crowd = {f"j{it}": walk.writer(f"j{it}", **of_any(walk.rnd)) for it in range(4)}
    crowd |= {f"r{it}": walk.recoverer(f"r{it}") for it in range(walk.rnd.choice([0, 1, 2]))}
    crowd["c"] = walk.checkpointer("c")
    if walk.rnd.random() < 0.4:
        crowd["o"] = walk.optimizer("o")
    walk.drive(crowd)
    walk.check_end()
    return walk


def first_jobs(seed: int) -> Walk:
    """Jobs of all kinds that find no table, or one that another one of them has made."""
    walk = Walk(seed)
    crowd = {f"j{it}": walk.writer(f"j{it}", **of_any(walk.rnd)) for it in range(4)}
    crowd |= {f"r{it}": walk.recoverer(f"r{it}") for it in range(walk.rnd.choice([0, 1, 2]))}
    crowd["c"] = walk.checkpointer("c")
    walk.drive(crowd)
    walk.check_end()
    return walk


def publishers(seed: int) -> Walk:
    """Jobs that several processes may publish, drivers that give up, recoverers, purge."""
    walk = Walk(seed)
    walk.make()
    crowd: dict[str, Any] = {}
    for job in ("j1", "j2"):
        crowd[job] = walk.handing_over(job, ["1"], walk.rnd.random() < 0.4)
        for at in range(walk.rnd.choice([1, 2])):
            crowd[f"{job}p{at}"] = walk.publisher(job, f"{job}p{at}")
    crowd["k"] = walk.writer("k", ["1"], replaced=day("1"))
    crowd |= {f"r{it}": walk.recoverer(f"r{it}") for it in range(walk.rnd.choice([0, 1, 2]))}
    crowd["c"] = walk.checkpointer("c")
    crowd["g"] = walk.purger("g")
    walk.drive(crowd)
    walk.check_end()
    return walk


def restores(seed: int) -> Walk:
    """Restores beside purges whose retention is a few seconds."""
    retention = {"delta.deletedFileRetentionDuration": f"interval {seed % 12 + 1} seconds"}
    walk = Walk(seed, {**COLUMNS.properties, **retention})
    walk.make()
    walk.alone(walk.writer("a", ["1"]))
    walk.alone(walk.writer("b", ["1"], replaced=day("1")))
    crowd = {f"g{it}": walk.purger(f"g{it}") for it in range(walk.rnd.choice([1, 2]))}
    crowd |= {f"u{it}": walk.restorer(f"u{it}") for it in range(2)}
    crowd["k"] = walk.writer("k", ["1"], replaced=day("1"), overtaking=Overtaking.LAST_WINS)
    crowd["c"] = walk.checkpointer("c")
    walk.drive(crowd)
    walk.check_end()
    return walk


def tries(seed: int) -> Walk:
    """Tries of one run, one after another, of which drivers die at any request, among jobs of
    other runs; checksum files name one transaction."""
    with patch.object(checksum, "TRANSACTIONS", 1):
        walk = Walk(seed)
        walk.make()
        for number in range(3):
            dies = walk.rnd.choice([0.04, 0.3])
            walk.drive({f"t{number}": walk.writer(f"t{number}", ["1"], run="daily")}, dies=dies)
            for at in range(walk.rnd.choice([0, 1, 2])):
                walk.alone(walk.writer(f"o{number}-{at}", ["2"], run=f"o{number}-{at}"))
            crowd = {f"u{number}": walk.writer(f"u{number}", ["1"], run="daily")}
            crowd[f"r{number}"] = walk.recoverer(f"r{number}")
            walk.drive(crowd)
        walk.check_end()
        return walk


def reruns(seed: int) -> Walk:
    """A run that loads again and again beside replaces, restores, compactions of this package and
    of others."""
    named = checksum.TRANSACTIONS if seed % 2 else 1
    with patch.object(checksum, "TRANSACTIONS", named):
        walk = Walk(seed)
        walk.make()
        walk.alone(walk.writer("a", ["1"]))
        last = {"replaced": day("1"), "overtaking": Overtaking.LAST_WINS}
        crowd: list[Callable[[str], Any]] = [
            walk.rerunner,
            walk.rerunner,
            walk.optimizer,
            walk.compactor,
            walk.restorer,
            walk.recoverer,
            lambda job: walk.writer(job, ["1"], **last),
            lambda job: walk.writer(job, ["2"], run=job),
        ]
        for number in range(8):
            name, work = f"s{number}", walk.rnd.choice(crowd)
            walk.drive({name: work(name)}, dies=walk.rnd.choice([0, 0, 0.2]))
        walk.drive({f"c{at}": walk.rnd.choice(crowd)(f"c{at}") for at in range(5)})
        walk.check_end()
        return walk


def replacing_reruns(seed: int) -> Walk:
    """A run that replaces its partition, again and again, beside appends to it and compactions."""
    walk = Walk(seed)
    walk.make()
    crowd: list[Callable[[str], Any]] = [
        lambda job: walk.rerunner(job, replaced=day("1")),
        walk.rerunner,
        walk.compactor,
        lambda job: walk.writer(job, ["1"], run=job),
    ]
    for number in range(8):
        name = f"s{number}"
        walk.drive({name: walk.rnd.choice(crowd)(name)}, dies=0)
    walk.drive({f"c{at}": walk.rnd.choice(crowd)(f"c{at}") for at in range(4)})
    walk.check_end()
    return walk


def late_runs(seed: int) -> Walk:
    """Runs of other ranks that give way to newer ones or replace them on purpose, beside restores,
    compactions, and jobs that empty partitions."""
    named = checksum.TRANSACTIONS if seed % 2 else 1
    ranked = checksum.RANKED if seed % 4 else 1
    with patch.multiple(checksum, TRANSACTIONS=named, RANKED=ranked):
        walk = Walk(seed)
        walk.make()

        def run(job: str) -> Any:
            rank = LogRanks(other=RunRank(walk.rnd.randrange(1, 5)))
            policy = walk.rnd.choice([*[Overtaking.NEWEST_RUN] * 5, Overtaking.LAST_WINS])
            days = [walk.rnd.choice(["1", "2"])]
            how = walk.rnd.choice([{}, {"replaced": day(*days)}, {"replaced": day(*days)}])
            empties = how and walk.rnd.random() < 0.3
            given = {"overtaking": policy, "ranks": rank, **how}
            return walk.writer(job, [] if empties else days, **given)

        crowd = [*[run] * 8, walk.compactor, walk.restorer, walk.recoverer]
        for number in range(8):
            name = f"s{number}"
            walk.drive({name: walk.rnd.choice(crowd)(name)}, dies=0)
        walk.drive({f"c{at}": walk.rnd.choice(crowd)(f"c{at}") for at in range(4)})
        walk.check_end()
        return walk


def settlements(seed: int) -> Walk:
    """Settlements of conflicts beside the runs that lose by them, those that stand and others, at
    any time; some runs settle one as they load."""
    named = checksum.TRANSACTIONS if seed % 2 else 1
    with patch.object(checksum, "TRANSACTIONS", named):
        walk, runs = Walk(seed), [f"run{it}" for it in range(6)]
        walk.make()

        def run(job: str) -> Any:
            days, own = [walk.rnd.choice(["1", "2"])], walk.rnd.choice(runs)
            policy = walk.rnd.choice([*[Overtaking.FAIL] * 4, Overtaking.LAST_WINS])
            how: dict[str, Any] = walk.rnd.choice([{}, {"replaced": day(*days)}])
            if how and walk.rnd.random() < 0.3:
                losers = tuple(it for it in runs if it != own)
                (place,) = day(*days).partitions
                how |= {"settles": {place: Settling(SettledRuns(own, losers))}, "reads": day(*days)}
            return walk.writer(job, days, run=own, overtaking=policy, **how)

        crowd = [*[run] * 6, *[lambda job: walk.settler(job, runs)] * 3]
        crowd += [walk.compactor, walk.restorer, walk.recoverer]
        for number in range(8):
            name = f"s{number}"
            walk.drive({name: walk.rnd.choice(crowd)(name)}, dies=0)
        walk.drive({f"c{at}": walk.rnd.choice(crowd)(f"c{at}") for at in range(4)})
        walk.check_end()
        return walk


def _played(walk: Walk, crowd: list[Callable[[str], Any]]) -> Walk:
    """A walk in which twelve of a crowd act one after another, some of which die, then five at
    once."""
    for number in range(12):
        name, work = f"s{number}", walk.rnd.choice(crowd)
        walk.drive({name: work(name)}, dies=walk.rnd.choice([0, 0, 0.2]))
    walk.drive({f"c{at}": walk.rnd.choice(crowd)(f"c{at}") for at in range(5)})
    walk.check_end()
    return walk


def undoings(seed: int) -> Walk:
    """Undoings of jobs, of undoings and of restores, beside jobs of the same partitions,
    compactions, and a run that loads again."""
    walk = Walk(seed)
    walk.make()
    crowd: list[Callable[[str], Any]] = [
        *[walk.undoer] * 4,
        walk.restorer,
        walk.compactor,
        walk.rerunner,
        walk.recoverer,
        lambda job: walk.writer(job, [walk.rnd.choice(["1", "2"])]),
        lambda job: walk.writer(job, ["1", "2"], replaced=day("1", "2")),
    ]
    return _played(walk, crowd)


def copies(seed: int) -> Walk:
    """Checkpoints of the fast tier beside merges, compactions, restores, undoings and a run that
    loads again; purges whose retention is short."""
    retention = {"delta.deletedFileRetentionDuration": f"interval {seed % 20 + 1} seconds"}
    walk = Walk(seed, {**COLUMNS.properties, **retention} if seed % 3 else dict(COLUMNS.properties))
    walk.make()
    crowd: list[Callable[[str], Any]] = [
        *[walk.mover] * 4,
        walk.editor,
        walk.editor,
        walk.restorer,
        walk.undoer,
        walk.rerunner,
        walk.compactor,
        walk.recoverer,
        walk.purger,
        walk.checkpointer,
        lambda job: walk.writer(job, [walk.rnd.choice(["1", "2"])]),
        lambda job: walk.writer(job, ["1", "2"], replaced=day("1", "2")),
    ]
    return _played(walk, crowd)


def late_records(seed: int) -> Walk:
    """Jobs beside recoverers on a store that leaves many writes without an answer: an open record
    may come after the end of its job."""
    walk = Walk(seed, hours=True)
    walk.make()
    crowd = {f"j{it}": walk.writer(f"j{it}", ["1"], run=f"j{it}") for it in range(4)}
    walk.drive(crowd | {f"r{it}": walk.recoverer(f"r{it}") for it in range(2)}, lost=0.35)
    walk.drive({f"s{it}": walk.recoverer(f"s{it}") for it in range(2)})
    walk.check_end()
    return walk


def sleepers(seed: int) -> Walk:
    """Jobs that sleep for hours beside others who clean the log."""
    walk = Walk(seed, {"delta.enableExpiredLogCleanup": "true"}, hours=True)
    walk.make()
    crowd = {f"j{it}": walk.writer(f"j{it}", **of_any(walk.rnd)) for it in range(5)}
    crowd |= {f"r{it}": walk.recoverer(f"r{it}") for it in range(walk.rnd.choice([0, 1]))}
    crowd |= {f"c{it}": walk.checkpointer(f"c{it}") for it in range(2)}
    crowd |= {f"d{it}": walk.cleaner(f"d{it}") for it in range(3)}
    walk.drive(crowd)
    walk.check_end()
    return walk


def asleep(seed: int) -> Walk:
    """One job that sleeps for hours at any of its requests, while others commit, write checkpoints
    and clean the log."""
    walk = Walk(seed, {"delta.enableExpiredLogCleanup": "true"})
    walk.make()

    def others(number: int) -> None:
        for at in range(walk.rnd.choice([0, 2, 4])):
            walk.alone(walk.writer(f"o{number}-{at}", ["2"]))
        walk.clock.advance(walk.rnd.choice([600, 4_000]))
        walk.alone(walk.checkpointer("c"))
        walk.clock.advance(walk.rnd.choice([0, 4_000, 90_000]))
        walk.alone(walk.cleaner("d"))

    step, answer = flatten(walk.writer("sleeper", **of_any(walk.rnd))), None
    sleeps = {walk.rnd.randrange(16) for _ in range(2)}
    try:
        for number in range(_TURNS):
            request = step.send(answer)
            before = walk.rnd.random() < 0.6
            if number in sleeps and before:
                others(number)
            answer = walk.carry_out(request)
            if number in sleeps and not before:
                others(number)
                if isinstance(request, s.Put) and walk.rnd.random() < 0.5:
                    answer = s.Unknown("time-out")
    except StopIteration:
        pass
    walk.check_end()
    return walk


def few_in_checksums(seed: int) -> Walk:
    """As *writers*, with checksum files that name no files and one transaction: a replace opens
    the log a second time, in every other walk for the files of its partitions alone."""
    many = opening.MANY if seed % 2 else 0
    with patch.multiple(checksum, FILES=0, TRANSACTIONS=1), patch.object(opening, "MANY", many):
        return writers(seed)


WORLDS: dict[str, Callable[[int], Walk]] = {
    "writers": writers,
    "first jobs": first_jobs,
    "publishers": publishers,
    "restores": restores,
    "tries": tries,
    "reruns": reruns,
    "replacing reruns": replacing_reruns,
    "late runs": late_runs,
    "settlements": settlements,
    "undoings": undoings,
    "copies": copies,
    "late records": late_records,
    "sleepers": sleepers,
    "asleep": asleep,
    "few in checksums": few_in_checksums,
}


def walk(world: str, seed: int) -> Walk:
    """Walk through a world once.

    :raises Broken: an invariant does not hold.
    """
    with log_read_once():
        return WORLDS[world](seed)
