"""Checkpoint of a Delta table: jobs copy files that lie only in a data root into the table.

Each job copies the files of partitions that were written together, byte by byte. Its entry replaces
the files by their copies. A job that changes rows meanwhile has priority, and no job gives way to a
checkpoint: a job that removes a copied file removes its copy instead (:mod:`.log.copies`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ..committer.commit.snapshot import Snapshot
from ..committer.errors import (
    CommitConflictError,
    DamagedError,
    FastRootGoneError,
    RefusedError,
    SnapshotGoneError,
    StoreRefusedError,
    StoreUnreachableError,
    counted,
)
from ..committer.format.job_spec import MAX_DURATION, FileOptions, Owner
from ..committer.format.layout import TableRoot, new_job_id
from ..committer.format.parquet.file_writer import file_settings
from ..committer.format.records.data_file import DataFile
from ..committer.store.driver import BotoDriver
from ..committer.store.fast_root import FastPlace, FastRoot, is_fast
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, Step
from ..committer.table_copy import LANES, copy_whole, send_whole
from ..committer.upkeep.checkpoint import (
    CheckpointAction,
    Checkpointed,
    CheckpointPlan,
    not_durable,
)
from ..committer.upkeep.unfinished import telling_of_jobs
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.change import CHECKPOINT, LogBase, LogChange
from ..log.copies import copy_of
from ..log.job_steps import OpenedLogJob, abandon_job, commit_job, leaves_no_entry, open_log_job
from ..log.opening import LogDepth, open_log
from .after_commit import checkpoint_where_due, tell_overwritten
from .delta_entry import owner_members
from .delta_files import snapshot_of
from .unpublished import delete_files

#: How many files the store copies at once.
_AT_ONCE = 100


@dataclass(frozen=True)
class DeltaCheckpointer:
    """The jobs that copy files of a Delta table out of its data root."""

    driver: BotoDriver
    root: TableRoot
    layout: DeltaLayout
    owner: Owner

    def copy_all(self, plans: Sequence[CheckpointPlan]) -> list[Checkpointed]:
        """Copy the files that lie only in data roots, by one job for each plan.

        :raises FastRootGoneError: a root cannot be reached. The files in other roots are copied.
        :raises UnfinishedUpkeepError: the store failed a job; the copies of those before stay.
        """
        done: list[Checkpointed] = []
        gone: FastRootGoneError | None = None
        unreached = set[FastRoot]()
        with telling_of_jobs(done):
            for plan in plans:
                if unreached & (roots := self._roots(it.key for it in plan.snapshot.files)):
                    continue
                try:
                    done += self.copy(plan)
                except FastRootGoneError as error:
                    gone = gone or error
                    unreached |= self._roots([error.key or ""]) or roots
        if gone is None:
            return done
        if copied := sum(it.action is CheckpointAction.COPIED for it in done):
            gone.message += f" Beside that, {counted(copied, 'partition')} lay in other roots; "
            gone.message += "what lay there was copied."
        raise gone

    def _roots(self, keys: Iterable[str]) -> set[FastRoot]:
        """Return the data roots that contain any of the keys."""
        places = (FastPlace.of(self.root.bucket, key) for key in keys)
        return {it.root for it in places if it is not None}

    def copy(self, plan: CheckpointPlan) -> list[Checkpointed]:
        """Copy the files of some partitions that lie only in the data root, by one job."""
        names = plan.partitions
        told = {
            **owner_members(self.owner),
            "max_duration": MAX_DURATION,
            "writes": {"partitions": names, "appends": True},
        }
        opening = open_log_job(self.layout, iter(new_job_id, ""), told, LogDepth.FILES)
        opened = self.driver.run(opening)
        copies: dict[str, DataFile] = {}
        try:
            now = self._plan_of(opened, names)
            copies = {self._key(opened.job, n): it for n, it in enumerate(_fast(now.snapshot))}
            self._send(opened.job, copies)
        except SnapshotGoneError as error:
            self._give_up(opened.job, copies)
            return self._told_gone(plan, error)
        except BaseException:
            self._give_up(opened.job, copies)
            raise
        return self._commit(plan, now, opened, copies)

    def _plan_of(self, opened: OpenedLogJob, names: Sequence[str]) -> CheckpointPlan:
        snapshot = snapshot_of(self.root, self.layout, opened.log.state, set(names))
        return CheckpointPlan(snapshot, tuple(not_durable(snapshot.files)))

    def _key(self, job: str, number: int) -> str:
        return f"{self.layout.data}{job}/part-{number:05d}.parquet"

    def _send(self, job: str, copies: dict[str, DataFile]) -> None:
        """Copy files to their keys, and check the copies."""
        driver, settings = self.driver, file_settings(job, FileOptions())
        if driver.reach(it.key for it in copies.values()) == {driver.clients}:
            items = [*copies.items()]
            for start in range(0, len(items), _AT_ONCE):
                some = items[start : start + _AT_ONCE]
                steps = tuple(copy_whole(self.root, file, key, settings) for key, file in some)
                driver.run(All(steps))
        else:
            with ThreadPoolExecutor(LANES) as lanes:
                send = partial(send_whole, driver, settings=settings)
                for _ in lanes.map(lambda item: send(item[1], item[0]), copies.items()):
                    pass  # Raises what a file's copy has raised.
        driver.run(_check(f"{self.layout.data}{job}/", copies))

    def _give_up(self, job: str, copies: dict[str, DataFile]) -> None:
        """Close a job that will not be committed, and delete its copies. If that fails, purge
        deletes them."""
        with suppress(StoreRefusedError, StoreUnreachableError):
            self.driver.run(delete_files(copies))
        self.driver.run(abandon_job(self.layout, job))

    def _commit(
        self,
        plan: CheckpointPlan,
        found: CheckpointPlan,
        opened: OpenedLogJob,
        copies: dict[str, DataFile],
    ) -> list[Checkpointed]:
        job, state = opened.job, opened.log.state
        sources = {self.layout.path_of(it.key): key for key, it in copies.items()}
        change = LogChange(
            job,
            LogBase(state.version, state.table_id),
            adds=tuple(
                copy_of(state.live[path], self.layout.path_of(key)) for path, key in sources.items()
            ),
            removes=frozenset(sources),
            changes_data=False,
            operation=CHECKPOINT,
            owner=owner_members(self.owner),
        )
        left = plan.of(set(plan.partitions) - set(found.partitions))
        changed = left.told(CheckpointAction.CHANGED_MEANWHILE)
        if not copies:
            self._give_up(job, copies)
            return changed
        now = int(max(time.time(), opened.opened_at) * 1000)  # The latter by the store's clock.
        try:
            done = self.driver.run(commit_job(self.layout, opened.log, change, now))
        except CommitConflictError:
            self._give_up(job, copies)
            return changed + self._again(found)
        except (RefusedError, DamagedError) as error:
            if leaves_no_entry(error):
                self._give_up(job, copies)
            raise
        assert done.entry is not None
        tell_overwritten(self.root, done)  # type: ignore[arg-type]
        self.driver.run(checkpoint_where_due(self.layout, self.root, state, done.entry))
        return changed + found.told(CheckpointAction.COPIED, job)

    def _again(self, plan: CheckpointPlan) -> list[Checkpointed]:
        """Copy the partitions that another job has not changed meanwhile."""
        state = self.driver.run(open_log(self.layout, LogDepth.FILES)).state
        names = set(plan.partitions)
        now = {it.key for it in snapshot_of(self.root, self.layout, state, names).files}
        moved = {it.partition for it in _fast(plan.snapshot) if it.key not in now} or names
        told = plan.of(moved).told(CheckpointAction.CHANGED_MEANWHILE)
        return told + (self.copy(plan.of(names - moved)) if names - moved else [])

    def _told_gone(self, plan: CheckpointPlan, error: SnapshotGoneError) -> list[Checkpointed]:
        """Report the partition of a missing file, and copy the other partitions.

        It is ``LOST`` if the log still names the file; otherwise another job has changed it."""
        state = self.driver.run(open_log(self.layout, LogDepth.FILES)).state
        live = {self.layout.key_of(path, state) for path in state.live}
        names = {it.partition for it in plan.snapshot.files if it.key == error.key}
        names = names or set(plan.partitions)
        lost = error.key in live
        action = CheckpointAction.LOST if lost else CheckpointAction.CHANGED_MEANWHILE
        left = set(plan.partitions) - names
        told = plan.of(names).told(action)
        return told + (self.copy(plan.of(left)) if left else [])


def _fast(snapshot: Snapshot) -> list[DataFile]:
    return [it for it in snapshot.files if is_fast(it.key)]


def _check(folder: str, copies: dict[str, DataFile]) -> Step[None]:
    """Check that each copy is there with the size of its source.

    :raises DamagedError: a copy is missing or has another size.
    """
    listing = yield from list_objects(folder)
    there = {item.key: item.size for item in listing.objects}
    for key, file in copies.items():
        if there.get(key) != file.size:
            raise DamagedError(
                f"The copy of {file.key} has {there.get(key, 'no')} bytes in the store, and "
                f"{file.size} were to be copied. Nothing of the copy is visible.",
                key=key,
                remedy="Verify the table: another may have written to the file's key.",
            )
