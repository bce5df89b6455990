"""Steps of a job in a Delta table: tasks write files of the job, and one entry commits them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from weakref import WeakKeyDictionary

from ..committer.commit.state.heartbeat import Beats
from ..committer.commit.state.job_state import Aborted, Committed, OpenedJob, UnpublishedJob
from ..committer.errors import RefusedError, about
from ..committer.format.job_spec import JobSpec
from ..committer.format.layout import TableRoot, new_job_id
from ..committer.format.records.pending_file import TaskResult
from ..committer.format.records.store_facts import StoreFacts
from ..committer.store.driver import BotoDriver, Driver
from ..log.job_steps import abandon_job, leaves_no_entry
from ..log.opening import LogDepth, OpenedLog, open_log
from .delta_commit import abort_delta_job, end_delta_job, withdraw_delta_job
from .delta_entry import Amend, unchanged
from .delta_files import layout_of
from .delta_opening import Seen, checked, open_delta_job
from .seen_logs import note_log, seen_log

#: The known guarantees of tables' stores, by driver and the table's URL.
_found: WeakKeyDictionary[Driver, dict[str, StoreFacts]] = WeakKeyDictionary()


class DeltaSteps:
    """The steps of jobs in one Delta table.

    A job's commit begins on the state that its opening has read. A process that has not opened the
    job itself reads the state again.

    :param amend: modifies the change of a job's entry; receives the state that the job began on.
    """

    def __init__(self, driver: BotoDriver, root: TableRoot, amend: Amend | None = None) -> None:
        self.driver, self.root = driver, root
        self._amend = amend or unchanged
        self.layout = layout_of(root)
        self._begun: dict[str, OpenedLog] = {}
        #: Jobs whose entry may have been sent and may still arrive.
        self._sent: set[str] = set()

    def job_id(self) -> str:
        return new_job_id()

    def open(self, job: str, spec: JobSpec) -> OpenedJob:
        with about(self.root.url):
            spec = checked(self.root, spec)
            # Before the first request: a bucket's policy may deny one without this encryption.
            self.driver.encrypt(self.root.prefix, spec.files.encrypted)
            self.driver.encrypt_by_default(spec.default_encryption, self.root.prefix)
            found = _found.setdefault(self.driver, {})
            seen = Seen(found.get(self.root.url), seen_log(self.driver, self.root))
            opened, log = self.driver.run(open_delta_job(self.root, job, spec, seen, self._amend))
            found[self.root.url] = opened.facts
        note_log(self.driver, self.root, log)
        self._begun[opened.job] = log
        return opened

    def count_files(self) -> int:
        """Return the number of live files of the table now."""
        state = self.driver.run(open_log(self.layout, LogDepth.BLIND)).state
        if state.count is None:
            state = self.driver.run(open_log(self.layout, LogDepth.FILES)).state
        return state.count or 0

    def forget(self, job: str) -> None:
        self.driver.run(abandon_job(self.layout, job))

    def heartbeat(self, opened: OpenedJob, beats: Beats) -> Callable[[], bool] | None:
        # Jobs send no heartbeats here: a job counts as alive for its whole max_duration.
        return None

    def commit(
        self, opened: OpenedJob, results: Sequence[TaskResult], tasks: int
    ) -> Committed | UnpublishedJob:
        log = self._begun.pop(opened.job, None)
        self._sent.add(opened.job)
        note = partial(note_log, self.driver, self.root)
        end = end_delta_job(self.layout, opened, log, self._amend, results, tasks, note)
        try:
            return self.driver.run(end)
        except RefusedError as error:
            if leaves_no_entry(error):
                self._sent.discard(opened.job)
            raise

    def abort(self, opened: OpenedJob, results: Sequence[TaskResult]) -> Aborted | Committed:
        if opened.repeated is not None:
            return opened.repeated
        if opened.unpublished is not None:
            # This job wrote nothing; the one that its run has left still waits.
            return Aborted(opened.job, self.root.url, 0)
        withdraws = opened.job in self._sent
        return self.driver.run(
            (withdraw_delta_job if withdraws else abort_delta_job)(self.layout, opened, results)
        )
