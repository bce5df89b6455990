"""One look for a job that a sensor waits for, the same in a worker and in the triggerer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ..committer.commit.state.job_state import JobState
from ..committer.errors import InvalidInputError, RecordDamagedError, first_few
from ..committer.format.layout import TableRoot, is_job_id
from .runs.outcomes import jobs_of_run
from .runs.partitions import check_partition
from .runs.reports import commit_report, one_line

if TYPE_CHECKING:
    from ..committer import Committed, Table
    from ..committer.format.records.success_marker import SuccessMarker
    from ..tables import DeltaTable
    from .runs.partitions import TableSpelling
    from .s3a.load import RunLook

#: Reads the ``_SUCCESS`` of a partition or, for ``None``, the table's (:meth:`.Table.marker`).
ReadMarker = Callable[[str | None], "SuccessMarker | None"]
READY, WAITING, FAILED, ERROR = "ready", "waiting", "failed", "error"
SKIPPED = "skipped"
ON_FOREIGN_MARKER = ("wait", "fail")
_BY_HAND = (
    "it was marked so by hand, or it wrote elsewhere than to {table}, or the job that it held back "
    "was aborted"
)
_WITHOUT_COMMIT = "it ended without a commit in {table}"
#: States of a task that has ended and will not load any more unless somebody clears it, each with
#: what it says of a task that has committed nothing.
_OVER = {
    **dict.fromkeys(("success", "removed"), _BY_HAND),
    "skipped": "it has nothing to load, as newer runs have, or a task before it was skipped",
    "failed": _WITHOUT_COMMIT,
    "upstream_failed": "a task before it has failed, and it did not start",
}
#: The id of a job of Hadoop's committers.
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True)
class QueryResult:
    """What one look found.

    :param state: :data:`READY`, :data:`WAITING`, :data:`FAILED` where waiting is in vain,
        :data:`SKIPPED` where it is since the task was skipped, or :data:`ERROR` where the table
        could not be read.
    :param explanation: one or two sentences, for the log or the error.
    :param report: the committed job (:func:`.reports.commit_report`) when ready.
    :param absent: nothing of the job is there.
    :param quiet: the answer stays as it is while nothing changes at :meth:`JobQuery.watched`.
    """

    state: str
    explanation: str
    report: dict[str, Any] | None = None
    absent: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class JobQuery:
    """Is *this* job committed, and to be seen by readers that list?

    One of ``job``, ``idempotency_key`` and ``newer_than_version`` says which job: that something is
    there never suffices, since yesterday's marker is there too.

    :param table: the table's whole root.
    :param job: a job's id.
    :param idempotency_key: the idempotency key of a run's task
        (:func:`.task_run.idempotency_key_of`).
    :param partition: the partition that is waited for; with ``job`` or ``idempotency_key``, the one
        the job has to have changed.
    :param newer_than_version: any job that moved the partition beyond this version.
    :param min_rows: fail when the job committed fewer rows (to the partition).
    :param min_files: the same of files.
    :param apply: apply a committed job whose owner has not, rather than wait for somebody.
    :param on_foreign_marker: ``wait`` or ``fail`` where a ``_SUCCESS`` lies that is not ours.
    :param spelled: the partition is written as its table writes it.
    """

    table: str
    job: str | None = None
    idempotency_key: str | None = None
    partition: str | None = None
    newer_than_version: int | None = None
    min_rows: int | None = None
    min_files: int | None = None
    apply: bool = False
    on_foreign_marker: str = "wait"
    spelled: bool = False

    @property
    def is_spelled(self) -> bool:
        """Whether no partition is to be written as its table does: ``day=1`` for ``day=01``."""
        return self.spelled or self.partition is None

    def spelled_by(self, spelling: TableSpelling) -> JobQuery:
        """The same question about the partition as its table writes it.

        :param spelling: :func:`.runs.partitions.table_spelling`.
        :raises InvalidInputError: the table cannot have it.
        """
        return replace(self, partition=spelling.partition(self.partition or ""), spelled=True)

    def check(self, known: Callable[[object], bool] = lambda value: value is not None) -> None:
        """See that the query says which job is meant.

        :param known: whether a value is what it will be, and no template of it.
        :raises InvalidInputError: it does not, or a value cannot be right.
        """
        given = (self.job, self.idempotency_key, self.newer_than_version)
        number = sum(it is not None for it in given)
        if number != 1:
            raise InvalidInputError(
                "A sensor waits for one particular job; "
                f"{'two arguments say' if number else 'nothing says'} which.",
                remedy="Give one of job=…, upstream_task_id=… (this run's task), "
                "idempotency_key=…, or partition=… with newer_than_version=…; or partitions=[…], "
                "whoever commits them.",
            )
        job = self.job
        if job is not None and known(job) and not (is_job_id(job) or _is_uuid(job)):
            raise InvalidInputError(
                f"{job!r} is not a job's id.",
                remedy="Take it from the load's XCom: {{ ti.xcom_pull('load')['job'] }}, or wait "
                "by upstream_task_id='load'.",
            )
        if self.newer_than_version is not None and self.partition is None:
            raise InvalidInputError(
                "newer_than_version counts the changes of a partition, and none is named.",
                remedy="Give partition=… as well.",
            )
        if self.partition is not None and known(self.partition):
            check_partition(self.partition)
        check_least(min_rows=self.min_rows, min_files=self.min_files)
        if self.on_foreign_marker not in ON_FOREIGN_MARKER:
            raise InvalidInputError(
                f"on_foreign_marker={self.on_foreign_marker!r} is unknown.",
                remedy=f"Choose one of {', '.join(ON_FOREIGN_MARKER)}.",
            )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def subject(self) -> str:
        """What is waited for, in words."""
        if self.job is not None:
            return f"job {self.job}"
        if self.idempotency_key is not None:
            return f"the job of {self.idempotency_key}"
        return f"a change of {self.partition} after version {self.newer_than_version}"

    @property
    def is_of_a_head(self) -> bool:
        """Whether a head says which job is meant, so that there is none where there is no head."""
        return self.idempotency_key is not None or self.newer_than_version is not None

    def watched(self, root: TableRoot) -> tuple[str, ...]:
        """Keys and folders (with a slash at their end) that tell whether the answer may have
        changed; none where nothing does."""
        from ..s3a.runs.ledger import run_prefix

        if self.on_foreign_marker == "fail":
            return ()
        if self.idempotency_key is not None:
            return root.run_key(self.idempotency_key), run_prefix(root, self.idempotency_key)
        if self.newer_than_version is not None:
            return (root.head_key(self.partition or ""),)
        return () if self.job is None or _is_uuid(self.job) else (root.decision_key(self.job),)

    def after(self, result: QueryResult, task_state: str | None) -> QueryResult:
        """What an answer means, given the state in which the task was *before* the look.

        A task that has ended without a commit will not commit. Its application may outlive it:
        while a job claims the run's head, a commit may still come.
        """
        if not (result.absent and result.quiet) or task_state not in _OVER:
            return result
        why = _OVER[task_state].format(table=self.table)
        return QueryResult(
            SKIPPED if task_state == "skipped" else FAILED,
            f"{result.explanation} Its task's state is {task_state!r}: {why}. Clear it to load.",
        )

    def ask(self, table: Table | DeltaTable) -> QueryResult:
        """Look once.

        :param table: the table at :attr:`table`; made once and kept, since making its clients
            costs more than looking.
        :raises ZeroRenameError: the store refused or did not answer, or a record is damaged.
        """
        # On use: DAG files are parsed by processes that ask nothing.
        from ..tables import DeltaTable
        from .s3a.load import RunLook, look_at_run, report_of_job

        if isinstance(table, DeltaTable):
            return self._of_log(table)

        if self.job is not None and _is_uuid(self.job):
            found = report_of_job(table, self.job, self.partition)
            return self._of_s3a(table, RunLook(found, "", is_writing=False))
        job = self._find_job(table)
        if job is None and self.idempotency_key is not None:
            return self._of_s3a(table, look_at_run(table, self.idempotency_key))
        if job is None:
            return self.not_there(table.marker, quiet=not self._is_claimed(table))
        state = table.job_state(job)
        if state is JobState.ABORTED:
            return QueryResult(FAILED, f"Job {job} was aborted; it will never be committed.")
        if state is JobState.UNKNOWN:
            return self.not_there(table.marker)
        if state is JobState.UNDECIDED:
            return QueryResult(WAITING, f"Job {job} has not decided yet.", quiet=True)
        if not table.is_closed(job):
            if not self.apply:
                return QueryResult(
                    WAITING, f"Job {job} is committed and not yet applied to its end."
                )
            table.recover()
            if not table.is_closed(job):
                return QueryResult(WAITING, f"Job {job} could not be applied to its end just now.")
        return self._ready(table, job)

    def _of_log(self, table: DeltaTable) -> QueryResult:
        """The same in a Delta table."""
        from .delta_query import look_at_partitions, refuse_of_directories

        fails = self.on_foreign_marker == "fail"
        refuse_of_directories(table, on_foreign_marker="fail" if fails else None)
        wanted = () if self.partition is None else (self.partition,)
        job = self.job
        if self.newer_than_version is not None:
            _, changes, _ = look_at_partitions(table, wanted, self.newer_than_version, None)
            change = changes.get(self.partition or "")
            if change is None:
                return QueryResult(WAITING, f"Nothing committed yet of {self.subject}.", quiet=True)
            return self._judged(commit_report(change.done, wanted), [*wanted])
        at_work = table.open_jobs()  # Before the look: what has ended by now has committed by now.
        if self.idempotency_key is not None:
            held = [it for it in at_work if it.unpublished]
            if any(it.idempotency_key == self.idempotency_key for it in held):
                # The run was loaded again: its rows of before are to be replaced.
                waits = table.unpublished_of_key(self.idempotency_key)
                if waits is not None:
                    return QueryResult(WAITING, f"Job {waits.job} waits to be published.")
            job = table.job_of_key(self.idempotency_key)
        committed = None if job is None else self._commit(table, job)
        if committed is not None:
            report = commit_report(committed, wanted)
            return self._judged(report, [it.partition for it in committed.partitions])
        is_at_work = any(
            it.damage or (it.job == job if job else it.idempotency_key == self.idempotency_key)
            for it in at_work
        )
        if is_at_work:
            return QueryResult(WAITING, f"{_capital(self.subject)} has not committed yet.")
        if self.job is not None and table.is_fenced(self.job):
            said = f"Job {job} was aborted; it will never be committed."
            return QueryResult(FAILED, said, quiet=True)
        if job is None and (key := self.idempotency_key) is not None:
            version = table.version_of_key(key)
            if version is not None:
                return _cleaned(key, version)
        said = f"Nothing committed yet of {self.subject}."
        return QueryResult(WAITING, said, absent=True, quiet=True)

    def _find_job(self, table: Table) -> str | None:
        if self.job is not None:
            return self.job
        if self.idempotency_key is not None:
            return table.job_of_key(self.idempotency_key)
        # -1 is the version before a log's first entry; a head begins at 0, before its first commit.
        return table.partition_job(self.partition or "", max(0, self.newer_than_version or 0))

    def _is_claimed(self, table: Table) -> bool:
        """Whether a job is about to change the head by which this query goes."""
        from ..committer.format.records.head import Slot

        slot = Slot.partition(table.root, self.partition or "")
        if self.idempotency_key is not None:
            slot = Slot.run(table.root, self.idempotency_key)
        return table.claimed_by(slot) is not None

    def not_there(self, marker: ReadMarker, quiet: bool = True) -> QueryResult:
        """Nothing yet. A marker that is not ours explains why nothing may ever come.

        :param marker: the table's ``marker``.
        """
        foreign = _foreign_marker(marker, self.partition)
        if foreign is None:
            explanation = f"Nothing committed yet of {self.subject}."
            return QueryResult(WAITING, explanation, absent=True, quiet=quiet)
        state = FAILED if self.on_foreign_marker == "fail" else WAITING
        return QueryResult(
            state,
            f"Nothing committed of {self.subject}, but there is another committer's marker: "
            f"{foreign} It does not tell this job from an earlier one, so it does not count.",
            absent=state == WAITING,
            quiet=quiet,
        )

    def _ready(self, table: Table, job: str) -> QueryResult:
        wanted = () if self.partition is None else (self.partition,)
        committed = self._commit(table, job)
        if committed is None:
            return QueryResult(WAITING, f"The decision of {job} could not be read just now.")
        report = commit_report(committed, wanted)
        return self._judged(report, [p.partition for p in committed.partitions])

    def _commit(self, table: Table | DeltaTable, job: str) -> Committed | None:
        """Read what a job committed. Of a run's jobs it is the one that holds its rows of the
        partition: a plan may have left that to the job before."""
        if self.idempotency_key is not None and self.partition is not None:
            for done in jobs_of_run(table, job):
                if any(it.partition == self.partition for it in done.partitions):
                    return done
        return table.result(job)

    def _of_s3a(self, table: Table, look: RunLook) -> QueryResult:
        """The same for a job of one of Hadoop's committers."""
        from .s3a.load import only

        found, is_over = look.report, not look.is_writing
        if found is None:
            is_of_run = self.idempotency_key is not None
            quiet = is_of_run and is_over and not self._is_claimed(table)
            return self.not_there(table.marker, quiet)
        if look.loads_again:
            return QueryResult(WAITING, look.loads_again, absent=True, quiet=is_over)
        if "conflict" in found:
            said = "Its task has failed for that, and each retry says so; clear it to load again."
            settled = found.get("settled_against")
            return QueryResult(FAILED, settled or f"{found['conflict']} {said}", found)
        wanted = () if self.partition is None else (self.partition,)
        return self._judged(only(found, wanted), [p["partition"] for p in found["partitions"]])

    def _judged(self, report: dict[str, Any], changed: list[str]) -> QueryResult:
        job = report["job"]
        if self.partition is not None and not report["partitions"]:
            touched = first_few(changed) or "none"
            return QueryResult(
                FAILED, f"Job {job} did not change {self.partition}, but: {touched}."
            )
        for what, least in (("rows", self.min_rows), ("files", self.min_files)):
            count = report[what]
            if least is None or (count is not None and count >= least):
                continue
            short = f"fewer than the {least} {what} asked for"
            if count is None:
                short = f"its {what} were not counted, as is needed"
            return QueryResult(FAILED, f"{one_line(report)}: {short} (min_{what}).", report)
        return QueryResult(READY, one_line(report), report)


def check_least(**counts: int | None) -> None:
    """See that arguments that say a least number say one.

    :raises InvalidInputError: one does not.
    """
    for name, least in counts.items():
        if least is not None and least < 0:
            what = name.removeprefix("min_")
            raise InvalidInputError(
                f"{name}={least} is no number of {what}.", remedy="Give at least 0."
            )


def _cleaned(key: str, version: int) -> QueryResult:
    """Say that a run is committed by an entry that is gone, so that waiting is in vain."""
    said = (
        f"The run {key} is committed, by version {version}, but another engine has cleaned that "
        "entry of the log: nobody can tell what the run loaded. If its rows are there, mark this "
        "task as successful."
    )
    return QueryResult(FAILED, said, quiet=True)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _is_uuid(job: str) -> bool:
    return _UUID.fullmatch(job) is not None


def _foreign_marker(read: ReadMarker, partition: str | None) -> str | None:
    """What a ``_SUCCESS`` that another committer left says, in a sentence; ``None`` where there
    is none or it is ours."""
    for place in dict.fromkeys((partition, None)):
        try:
            marker = read(place)
        except RecordDamagedError as error:
            return error.message
        if marker is not None and marker.manifest is None:
            return f"The _SUCCESS marker was written by the {marker.committer!r} committer."
    return None
