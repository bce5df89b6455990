"""Query for the job that a sensor waits for, the same in a worker and in the triggerer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ..committer.commit.state.job_state import JobState
from ..committer.errors import InvalidInputError, RecordDamagedError, StoreRefusedError, first_few
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

#: Reads a partition's ``_SUCCESS``; for ``None``, that of the table (:meth:`.Table.stored_marker`).
ReadMarker = Callable[[str | None], "SuccessMarker | None"]
READY, WAITING, FAILED, ERROR = "ready", "waiting", "failed", "error"
SKIPPED = "skipped"
ON_FOREIGN_MARKER = ("wait", "fail")
_BY_HAND = (
    "it was marked so by hand, or it wrote elsewhere than to {table}, or the job that it held back "
    "was aborted"
)
_WITHOUT_COMMIT = "it ended without a commit in {table}"
#: States of a task that has ended and loads again only if it is cleared. Each has the reason why
#: such a task has committed nothing.
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
    """Result of one poll.

    :param state: :data:`READY`; :data:`WAITING`; :data:`FAILED`, if the job will never come;
        :data:`SKIPPED`, if it will never come since its task was skipped; or :data:`ERROR`, if the
        table could not be read.
    :param explanation: one or two sentences, for the log or the error.
    :param report: the committed job (:func:`.reports.commit_report`) when ready.
    :param absent: no commit of the job was found.
    :param quiet: the result stays the same until something changes at :meth:`JobQuery.watched`.
    """

    state: str
    explanation: str
    report: dict[str, Any] | None = None
    absent: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class JobQuery:
    """Question: is one particular job committed, and visible to readers that list?

    One of ``job``, ``idempotency_key`` and ``newer_than_version`` identifies the job. The mere
    presence of files or of a marker proves nothing: yesterday's marker is there too.

    :param table: the URL of the table's root.
    :param job: a job's id.
    :param idempotency_key: the idempotency key of a run's task
        (:func:`.task_run.idempotency_key_of`).
    :param partition: the partition to wait for; with ``job`` or ``idempotency_key``, the job must
        have changed it.
    :param newer_than_version: any job that moved the partition beyond this version.
    :param min_rows: fail if the job committed fewer rows (to the partition).
    :param min_files: fail if the job committed fewer files (to the partition).
    :param apply: apply a committed job that its owner has not applied, rather than wait until
        another process does.
    :param on_foreign_marker: ``wait`` or ``fail`` if there is a ``_SUCCESS`` of another committer.
    :param spelled: the partition has the spelling of its table.
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
        """True if the partition has its table's spelling (``day=1``, not ``day=01``)."""
        return self.spelled or self.partition is None

    def spelled_by(self, spelling: TableSpelling) -> JobQuery:
        """Return the same query with the partition spelled as its table spells it.

        :param spelling: :func:`.runs.partitions.table_spelling`.
        :raises InvalidInputError: the table cannot have such a partition.
        """
        return replace(self, partition=spelling.partition(self.partition or ""), spelled=True)

    def check(self, known: Callable[[object], bool] = lambda value: value is not None) -> None:
        """Check that the query identifies one job.

        :param known: return whether a value is final, not a template.
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
        """Description of the job, for messages."""
        if self.job is not None:
            return f"job {self.job}"
        if self.idempotency_key is not None:
            return f"the job of {self.idempotency_key}"
        return f"a change of {self.partition} after version {self.newer_than_version}"

    @property
    def is_of_a_head(self) -> bool:
        """True if a head identifies the job: without that head there is no such job."""
        return self.idempotency_key is not None or self.newer_than_version is not None

    def watched(self, root: TableRoot) -> tuple[str, ...]:
        """Return the keys and folders to watch: the answer changes only if one of them does.

        :return: folders end with a slash; empty if the answer may change without any of them: then
            each poll asks anew.
        """
        from ..s3a.runs.ledger import run_prefix

        if self.on_foreign_marker == "fail":
            return ()
        if self.idempotency_key is not None:
            return root.run_key(self.idempotency_key), run_prefix(root, self.idempotency_key)
        if self.newer_than_version is not None:
            return (root.head_key(self.partition or ""),)
        return () if self.job is None or _is_uuid(self.job) else (root.decision_key(self.job),)

    def after(self, result: QueryResult, task_state: str | None) -> QueryResult:
        """Return a result that also takes the state of the run's task into account.

        A task that has ended without a commit will not commit any more. But its application may
        outlive the task: while a job claims the run's head, a commit may still come.

        :param task_state: the state that the task had *before* the poll.
        """
        if not (result.absent and result.quiet) or task_state not in _OVER:
            return result
        why = _OVER[task_state].format(table=self.table)
        return QueryResult(
            SKIPPED if task_state == "skipped" else FAILED,
            f"{result.explanation} Its task's state is {task_state!r}: {why}. Clear it to load.",
        )

    def ask(self, table: Table | DeltaTable) -> QueryResult:
        """Poll the table once.

        :param table: the table at :attr:`table`. Make it once and keep it: its clients cost more
            than a poll.
        :raises ZeroRenameError: the store refused or did not answer, or a record is damaged.
        """
        # Imported on use: processes that only parse DAG files need not load it.
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
            return self.not_there(table.stored_marker, quiet=not self._is_claimed(table))
        state = table.job_state(job)
        if state is JobState.ABORTED:
            return QueryResult(FAILED, f"Job {job} was aborted; it will never be committed.")
        if state is JobState.UNKNOWN:
            return self.not_there(table.stored_marker)
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
        """Poll a Delta table once."""
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
        # Read before the log: a job that is not open any more has its commit in the log by now.
        at_work = table.open_jobs()
        if self.idempotency_key is not None:
            held = [it for it in at_work if it.unpublished]
            if any(it.idempotency_key == self.idempotency_key for it in held):
                # The run was loaded again: the rows that it committed before are to be replaced.
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
        if (by_hadoop := self._before_the_log(table)) is not None:
            return by_hadoop
        said = f"Nothing committed yet of {self.subject}."
        return QueryResult(WAITING, said, absent=True, quiet=True)

    def _before_the_log(self, table: DeltaTable) -> QueryResult | None:
        """Return what one of Hadoop's committers had loaded before the directory was adopted as a
        Delta table; ``None``: their records know nothing of the job."""
        from ..tables.table_at import directories_at
        from .s3a.load import RunLook, look_at_run, report_of_job

        directory = directories_at(table)
        try:
            if self.idempotency_key is not None:
                look = look_at_run(directory, self.idempotency_key)
            elif self.job is not None and _is_uuid(self.job):
                look = RunLook(report_of_job(directory, self.job, self.partition), "", False)
            else:
                return None
        except StoreRefusedError as error:
            # These records lie beside the table: a reader of the table may lack the right.
            if not error.lacks_right:
                raise
            return None
        return None if look.report is None else self._of_s3a(directory, look)

    def _find_job(self, table: Table) -> str | None:
        if self.job is not None:
            return self.job
        if self.idempotency_key is not None:
            return table.job_of_key(self.idempotency_key)
        # -1 is the version before a log's first entry. A head's version before its first commit
        # is 0.
        return table.partition_job(self.partition or "", max(0, self.newer_than_version or 0))

    def _is_claimed(self, table: Table) -> bool:
        """Return whether a job claims the head that this query asks about."""
        from ..committer.format.records.head import Slot

        slot = Slot.partition(table.root, self.partition or "")
        if self.idempotency_key is not None:
            slot = Slot.run(table.root, self.idempotency_key)
        return table.claimed_by(slot) is not None

    def not_there(self, marker: ReadMarker, quiet: bool = True) -> QueryResult:
        """Build the result for a job that has not committed.

        If there is a marker of another committer, the explanation names it: perhaps no job of
        this committer will ever come.

        :param marker: the table's ``stored_marker``.
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
        """Read what a job committed.

        For a run and a partition, this is the run's job that holds its rows of the partition: if
        a plan let the last job make only some partitions, that may be a job before it.
        """
        if self.idempotency_key is not None and self.partition is not None:
            for done in jobs_of_run(table, job):
                if any(it.partition == self.partition for it in done.partitions):
                    return done
        return table.result(job)

    def _of_s3a(self, table: Table, look: RunLook) -> QueryResult:
        """Build the result for a job of one of Hadoop's committers."""
        from .s3a.load import only

        found, is_over = look.report, not look.is_writing
        if found is None:
            is_of_run = self.idempotency_key is not None
            quiet = is_of_run and is_over and not self._is_claimed(table)
            return self.not_there(table.stored_marker, quiet)
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
    """Check that minimum counts are not negative.

    :param counts: such as ``min_rows``, by argument name; ``None``: not given.
    :raises InvalidInputError: one is negative.
    """
    for name, least in counts.items():
        if least is not None and least < 0:
            what = name.removeprefix("min_")
            raise InvalidInputError(
                f"{name}={least} is no number of {what}.", remedy="Give at least 0."
            )


def _cleaned(key: str, version: int) -> QueryResult:
    """Build the result for a run whose log entry was cleaned, so its commit cannot be read."""
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
    """Describe the ``_SUCCESS`` of another committer in a sentence.

    :return: ``None`` if there is no marker, or only ours. For a damaged marker, the error.
    """
    for place in dict.fromkeys((partition, None)):
        try:
            marker = read(place)
        except RecordDamagedError as error:
            return error.message
        if marker is not None and marker.manifest is None:
            return f"The _SUCCESS marker was written by the {marker.committer!r} committer."
    return None
