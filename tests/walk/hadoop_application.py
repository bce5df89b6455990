"""The application of an attempt: what ``save()`` and one of Hadoop's committers do, without Spark.

At each pause it may die, another process may run, or it may hear that it must not write any more.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from walk.hadoop_plan import PlannedRun
from walk.hadoop_world import Author, CommittedJob, HadoopWorld
from walk.oracle import Violation
from walk.world import ROOT

from support.s3a_jobs import MadeFile, MagicJob, StagingJob
from support.s3a_stand_in import marker
from zero_rename.committer.errors import ZeroRenameError
from zero_rename.committer.format.job_spec import OnConflict
from zero_rename.committer.store import requests as s
from zero_rename.orchestration.s3a.load import S3ALoad
from zero_rename.s3a.hadoop.settings import Committer
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.runs.try_record import FAILED, WRITTEN, TryRecord, WriteRecord, write_uuid

#: Seconds that a write takes at least: the store's times have whole seconds.
_MOMENT = 1.1


class ApplicationError(Exception):
    """The application of an attempt has failed."""


class Application:
    """An application.

    :param failure: why it has failed; ``None``: it has not.
    :param fence: why it must not write any more; ``""``: it may.
    """

    def __init__(self, world: HadoopWorld, run: PlannedRun, attempt: int, load: S3ALoad) -> None:
        self.world, self.run, self.attempt, self.uuid = world, run, attempt, load.uuid
        self.began = world.clock.now
        self.failure: str | None = None
        self.fence = ""
        self.is_committing = False
        self._table = world.table()
        self._writes: dict[int, WriteRecord] = {}
        self._writing: int | None = None
        name = f"{run.id}'s application {attempt}"
        self.strand = world.begin_writing(run, name, self._main)
        world.heartbeats.append(self.send_heartbeat)

    def _main(self) -> None:
        whole = self.run.committer is Committer.PARTITIONED or not self.run.replaces
        targets = [None] if whole else [*self.run.partitions]
        try:
            for number, target in enumerate(targets, 1):
                Write(self, number, target, len(targets)).carry_out()
        except (ApplicationError, ZeroRenameError) as error:
            self.failure = f"{type(error).__name__}: {error}"
        self._writing = None

    def kill(self) -> None:
        if not self.strand.is_over:
            self.world.kill(self.strand)
            self.failure = "killed"

    def pause(self, place: str) -> None:
        """Let others run.

        :raises ApplicationError: the application must not write any more, and is not committing.
        """
        self.world.pause(place)
        if self.fence and not self.is_committing:
            raise ApplicationError(self.fence)

    def begin(self, write: WriteRecord) -> None:
        """Enter a write that begins.

        :raises ApplicationError: it must not begin.
        """
        if fence := self._beat(write):
            self.enter(replace(self._writes[write.number], state=FAILED))
            raise ApplicationError(f"not begun: {fence}")
        self._writing = write.number

    def send_heartbeat(self) -> None:
        """Send the heartbeat of the write under way, and hear whether it may go on."""
        if self._writing is not None and not (self.fence or self.strand.is_over):
            self.fence = self._beat(self._writes[self._writing])

    def ask(self) -> None:
        """Ask once more whether the write under way may commit.

        :raises ApplicationError: it must not.
        """
        self.send_heartbeat()
        if self.fence:
            raise ApplicationError(self.fence)

    def end(self, number: int, **changes: Any) -> None:
        """Enter how a write has ended."""
        self.enter(replace(self._writes[number], **changes))
        self._writing = None

    def _beat(self, write: WriteRecord) -> str:
        if not self.enter(write):
            return "the record of this attempt was removed"
        return self._table.run(ledger.superseded(ROOT, self.run.key, self.uuid))

    def enter(self, write: WriteRecord) -> bool:
        """Enter a write into the attempt's record; return whether there is one."""

        def entered(found: TryRecord, now: float) -> TryRecord:
            ended = now if write.state == WRITTEN else 0.0
            its = replace(write, opened_at=write.opened_at or now, ended_at=ended)
            self._writes[write.number] = its
            for one in self._writes.values():
                found = found.with_write(one)
            return replace(found, beat_at=now)

        self._writes.setdefault(write.number, write)
        known = self._table.run(ledger.find_try(ROOT, self.uuid))
        if known is None:
            return False
        return self._table.run(ledger.change(ROOT, known.record, entered)) is not None


class Write:
    """One job of a committer.

    :param target: the partition into whose folder it writes; ``None``: it writes into the table.
    """

    def __init__(self, application: Application, number: int, target: str | None, of: int) -> None:
        self.application, self.number, self.target = application, number, target
        self.world, self.run = application.world, application.run
        self.prefix = f"{ROOT.prefix}/{target}" if target else ROOT.prefix
        self.among = () if target or not self.run.named else self.run.partitions
        self.uuid = write_uuid(application.uuid, number)
        self.record = WriteRecord(
            uuid=self.uuid,
            number=number,
            committer=self.run.committer,
            destination=ROOT.url + (f"/{target}" if target else ""),
            mode=str(self.run.mode),
            partition=target,
            part=number,
            parts=of,
            among=self.among,
        )
        self.job = self._job()
        self.written = [target] if target else self._with_rows()

    def _job(self) -> MagicJob:
        world, write = self.world, str(self.world.make_uuid())
        folder = self.target or ""
        if self.run.committer is Committer.MAGIC:
            return MagicJob(world.perform, ROOT, self.uuid, write, folder)
        return StagingJob(world.perform, ROOT, self.uuid, write, folder, staging=world.staging)

    def _with_rows(self) -> list[str]:
        """The partitions that get rows: an overwrite by *partitioned* may leave some out."""
        names = [*self.run.partitions]
        if not self.run.replaces:
            return names
        return [it for it in names if self.world.rng.random() < 0.85] or names[:1]

    def carry_out(self) -> None:
        """Write, commit and enter it.

        :raises ApplicationError: it has failed, and its job is aborted.
        """
        application = self.application
        self.world.clock.advance(_MOMENT)
        application.begin(self.record)
        try:
            self._set_up()
            self._run_tasks()
            application.pause("before the commit")
            application.ask()
            self._commit()
        except ApplicationError:
            application.is_committing = False
            self._abort()
            application.end(self.number, state=FAILED)
            raise
        self._finish()
        self._check_settled()
        if application.fence:
            raise ApplicationError("unknown: it has committed, though it was not to write any more")
        application.pause("written")
        self.world.clock.advance(_MOMENT)

    def _set_up(self) -> None:
        self.application.pause("before Spark")
        if self.run.replaces and self.run.committer is Committer.MAGIC:
            self._remove_files(self.target)
        self.world.perform(s.Delete(f"{self.prefix}/_SUCCESS"))
        self.job.begin()
        self.application.pause("its job is set up")

    def _run_tasks(self) -> None:
        for number in range(self.world.rng.choice([1, 2, 2])):
            made = [self._upload(number, partition) for partition in self.written]
            attempt = f"attempt_202311142213_0001_m_{number:06d}_{number}"
            self.application.pause("a task has written")
            commits = [it.commit(ROOT.bucket, self.uuid, attempt) for it in made]
            self.job.pending_set(number, commits, attempt)
            self._set_times()
            self.job.files += made
            self.application.pause("a task has committed")

    def _upload(self, number: int, partition: str) -> MadeFile:
        name = self.job.name(number, partition)
        path = name.rpartition("/")[2] if self.target else name
        # Two files are hardly ever of one size, by which a sensor tells them apart.
        size = self.world.rng.randrange(1, 10_000)
        made = self.job.upload(path, [b"x" * size])
        author = Author(self.run.id, self.application.uuid, self.uuid)
        self.world.authors[made.key] = author
        return made

    def _set_times(self) -> None:
        """Give what is staged on disk the world's time."""
        for path in self.world.staging.rglob("*") if isinstance(self.job, StagingJob) else ():
            if self.uuid in str(path):
                os.utime(path, (self.world.clock.now, self.world.clock.now))

    def _commit(self) -> None:
        """Do what the committer does in its driver, up to the report.

        :raises ApplicationError: a file is not there any more; the other files are removed.
        """
        if not isinstance(self.job, StagingJob) and not self._pending_sets():
            raise ApplicationError("FileNotFoundException: the magic folder is not there")
        self.application.is_committing = True
        if self.run.replaces and self.run.committer is Committer.DIRECTORY:
            self._remove_files(self.target)
        if self.run.replaces and self.run.committer is Committer.PARTITIONED:
            for partition in self.written:
                self._remove_files(partition)
        self.application.pause("the commit has begun")
        for made in self.job.files:
            self._complete(made)
        self._publish({it.key: len(it.body) for it in self.job.files})

    def _pending_sets(self) -> Sequence[str]:
        return [it for it in self.world.store.keys(self.job.attempt) if it.endswith(".pendingset")]

    def _remove_files(self, partition: str | None) -> None:
        """Remove what an overwrite replaces; others may come when it has removed a half."""
        keys = self.world.store.keys(f"{ROOT.prefix}/{partition}/")
        self.world.touch(partition, self.run.id)
        half = len(keys) // 2 if self.world.rng.random() < 0.5 else len(keys)
        for number, key in enumerate(keys):
            if number == half:
                self.application.pause("half of the files are removed")
            self.world.perform(s.Delete(key))

    def _complete(self, made: MadeFile) -> None:
        done = self.world.perform(s.CompleteUpload(made.key, made.upload_id, tuple(made.etags)))
        if not isinstance(done, s.Done):
            if not self.application.fence:
                raise Violation(f"an upload of the living {self.application.strand.name} is gone")
            for it in self.job.files:
                self.world.delete(it.key, self.run.id)
            raise ApplicationError("FileNotFoundException: an upload is not there")
        self.world.touch(ROOT.partition_of_data_key(made.key), self.run.id)
        self.application.pause("a file is there")

    def _publish(self, sizes: dict[str, int]) -> None:
        """Write ``_SUCCESS`` and the report, and clean up between them."""
        said = json.loads(marker(self.uuid, self.run.committer, sizes))
        said["timestamp"] = int(self.world.clock.now * 1000)
        body = json.dumps(said).encode()
        self.world.perform(s.Put(f"{self.prefix}/_SUCCESS", body))
        job = CommittedJob(self.uuid, self.application.uuid, frozenset(sizes))
        self.world.committed.append(job)
        self.application.pause("it has its _SUCCESS")
        self._clean_up()
        self.application.pause("it is cleaned up")
        folder = ledger.report_prefix(ROOT, self.application.uuid, self.number)
        self.world.perform(s.Put(f"{folder}/summary-j.json", body))
        self.application.pause("it has its report")

    def _finish(self) -> None:
        """Empty the partitions that have got no row, and enter the write as written."""
        emptied = []
        if self.run.replaces and self.run.committer is Committer.PARTITIONED:
            for partition in self.among:
                files = self.world.files(partition)
                if any(self.uuid in key for key in files):
                    continue
                for key in files:
                    self.world.delete(key, self.run.id)
                emptied.append(partition)
                self.application.pause("a partition is emptied")
        rows = len(self.job.files)
        self.application.end(self.number, state=WRITTEN, rows=rows, emptied=tuple(emptied))
        self.application.is_committing = False

    def _check_settled(self) -> None:
        """Tell of a load against which a conflict was settled before; another one ends it."""
        run, application = self.run, self.application
        gives_way = run.policy.on_conflict is not OnConflict.LAST_WINS
        for partition in [self.target] if self.target else run.partitions:
            held = self.world.settled.get(partition)
            if held is None:
                continue
            came_later = application.began > held.at and application.attempt > 1
            if gives_way and came_later and run.id in held.losers:
                raise Violation(f"{run.id} has lost {partition} to {held.winner}, and loads it")
            if run.id != held.winner:
                del self.world.settled[partition]

    def _clean_up(self) -> None:
        if isinstance(self.job, StagingJob):
            shutil.rmtree(self.job.place.parents[2], ignore_errors=True)
        else:
            for key in self.world.store.keys(self.job.tree):
                self.world.perform(s.Delete(key))

    def _abort(self) -> None:
        for made in self.job.files:
            self.world.perform(s.AbortUpload(made.key, made.upload_id))
        self._clean_up()
