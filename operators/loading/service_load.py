"""Loads whose application runs in a service, and goes on if the task's worker dies."""

from __future__ import annotations

import re
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from ...committer.errors import InvalidInputError, OutcomeUnknownError, ZeroRenameError
from ...committer.format.layout import PACKAGES
from ...committer.store.s3_urls import SCHEME
from ...orchestration.runs.arguments import Parser, read_flag, read_text
from ...orchestration.runs.heartbeat import heartbeats
from ...orchestration.runs.outcomes import UnendedJobError, log_what_is_left, settle_killed
from ...orchestration.submit.credentials import looks_like_credential
from ...orchestration.submit.job_mark import JobMark, MarkedJob
from ...orchestration.submit.package_file import build_zip, put_once
from ...orchestration.submit.service_words import refuse_in_request
from ...provider.compat import trigger_timeout
from ...provider.failures import ended_for_good, explained, final_where_refused
from ...s3a.hadoop.settings import NATIVE, Committer, check_options
from ...s3a.services import RULES, ServiceJob, check_word
from .load import LoadOperator, TableLoad
from .s3a_load import (
    asked_of,
    encrypt_records,
    loaded_before,
    policy_of,
    read_options,
    s3a_load_of,
    told,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ...committer.upkeep.access_policy import Service
    from ...orchestration.runs.loaded_table import LoadedTable
    from ...orchestration.runs.task_run import TaskRun
    from ...orchestration.s3a.load import DeferredLoad, S3ALoad

_PLACE = re.compile(rf"{SCHEME}([^/:\s]+)(?:/(\S*))?")
#: Part of the amazon provider's message after the last of its polls of a job.
_LOOKED_ENOUGH = "max attempts"
#: The method with which Airflow resumes a task whose trigger has failed or timed out.
_FAILS = "__fail__"


class _UnendedError(AirflowException, UnendedJobError):
    """The wait for a service's job has ended before the job did, as an error of a task."""


class ServiceLoadOperator(LoadOperator):
    """Base of the operators whose application runs as a job of a service.

    The job runs with the rights of its own role: it gets no keys of a connection. Its name has a
    mark of the run and the attempt (:mod:`~.orchestration.submit.job_mark`). So if the worker of an
    attempt was killed, the next attempt finds the job that still runs, and waits for it instead of
    starting another one.

    A deferred task goes on with :meth:`load_completed`, which lets the operator that submits check
    the event.

    :param package_location: ``s3://bucket/prefix``, the place of the package for the job; ``None``
        for ``_zero_rename_packages/`` in the table's bucket. The connection writes it, the job's
        role reads it. (templated)
    :param ship_package: give the job this package; not needed if its image has it. (templated)
    :param s3a_options: for Hadoop's committers, members of :class:`~.hadoop.settings.S3ASettings`
        such as ``threads``, ``staging_dir``; they win over the connection's. (templated)
    :param strict: for Hadoop's committers, refuse a load if the settings of the service cannot be
        checked before the submission, since a right is missing or a release is not known.
        Otherwise this is logged, and ``save()`` checks them in the job. (templated)
    :param wait_for_completion: only ``True``, since a load is reported when its job has ended.
    :raises InvalidInputError: ``wait_for_completion=False``.
    """

    template_fields: Sequence[str] = (
        *LoadOperator.template_fields,
        *("package_location", "ship_package", "s3a_options", "strict"),
    )
    parsers: ClassVar[Mapping[str, Parser]] = {
        "package_location": read_text,
        "s3a_options": read_options,
        **dict.fromkeys(("ship_package", "strict"), read_flag),
    }
    #: The service, whose rules for Hadoop's committers are in :data:`~.s3a.services.RULES`.
    service: ClassVar[Service]
    #: Attributes of the operator that submits with the content of the request to the service.
    request_fields: Sequence[str] = ()
    #: Attributes with the ids of connections to the service.
    connection_fields: Sequence[str] = ()
    #: The method with which the operator that submits goes on after a deferral, and the argument
    #: that decides whether it waits for its job.
    completed_by, waits_by = "execute_complete", "wait_for_completion"
    #: An application has certainly ended if its job has.
    ends_with_job = True
    #: Cancel a job that has not ended after the last poll; otherwise it goes on.
    cancels_late = False
    #: Function that writes the package, in the service's format, to a folder.
    build_package: Callable[[Path], Path] = staticmethod(build_zip)

    def __init__(
        self,
        *,
        package_location: str | None = None,
        ship_package: bool | str = True,
        s3a_options: Mapping[str, Any] | str | None = None,
        strict: bool | str = False,
        **kwargs: Any,
    ) -> None:
        self.package_location = package_location
        self.ship_package = ship_package
        self.s3a_options: Any = s3a_options or {}
        self.strict: Any = strict
        self._mark: JobMark | None = None
        self._resume: dict[str, Any] = {}
        self._s3a_load: S3ALoad | None = None
        if self.waits_by and not kwargs.setdefault(self.waits_by, True):
            raise InvalidInputError(
                f"{self.waits_by}=False: a load is reported and checked when its job has ended.",
                remedy="Leave it out; deferrable=True frees the worker meanwhile.",
            )
        super().__init__(**kwargs)

    def load_completed(
        self,
        context: Context,
        event: dict[str, Any] | None = None,
        *,
        earlier: str | None = None,
        held: str | None = None,
        following: str | None = None,
        s3a: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Report the commit of the job for which the task was deferred.

        :param event: of the trigger.
        :param earlier: the run's job that had committed before this one was submitted.
        :param held: the run's job that waited to be published before.
        :param following: the mark of the job, if an earlier attempt had submitted it.
        :param s3a: members of :class:`~.s3a.load.DeferredLoad`, for one of Hadoop's committers.
        """
        load = self._table_load(context)
        self._resume = {"earlier": earlier, "held": held, "following": following, "s3a": s3a}
        self._mark = own = _mark_of(load)
        if s3a is not None:
            encrypt_records(load, self.s3a_options)
            report = self._s3a_completed(load, s3a, lambda: self._check_event(context, event))
            return self._published(context, load, report)
        mark = JobMark.find(following or "")
        if mark is None:
            with self._watched(load.table, load.run), self._ending(own):
                self._check_event(context, event)
            done = replace(load, earlier=earlier, held=held)
            return self._published(context, load, self._outcome(done))
        report = self._followed(load, mark, lambda: self._check_event(context, event))
        return self._published(context, load, report or self._load(context, load))

    def defer(
        self,
        *,
        trigger: Any,
        method_name: str,
        kwargs: dict[str, Any] | None = None,
        timeout: Any = None,
    ) -> Any:
        """Defer with the facts of the job, and with the task's ``execution_timeout``.

        Airflow 3 itself does not apply ``execution_timeout`` while a task is deferred.
        """
        if timeout is None:
            timeout = self.execution_timeout
        if method_name == self.completed_by:
            if self._s3a_load is not None:
                self._s3a_load.note_deferred()
            method_name, kwargs = "load_completed", {**(kwargs or {}), **self._resume}
        elif self._s3a_load is not None:
            # Deferred for something else, such as the start of the service's application: the task
            # begins again after that, with a new attempt in the ledger.
            self._s3a_load.withdraw()
        super().defer(trigger=trigger, method_name=method_name, kwargs=kwargs, timeout=timeout)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Go on after a deferral; treat a timeout and a failed trigger.

        If the task was deferred for longer than its ``execution_timeout``, the job is cancelled, as
        that of a task that was not deferred. If the trigger has failed, the error says that the job
        goes on.

        :raises AirflowException: in both of these cases.
        """
        if next_method != _FAILS:
            return super().resume_execution(next_method, next_kwargs, context)
        load = self._table_load(context)
        self._mark = mark = _mark_of(load)
        if trigger_timeout(next_method, next_kwargs) is None:
            # It may have waited for the job of an earlier attempt: nothing here says so.
            with self._resumed(load), self._ending(mark, of_any_attempt=True):
                return super().resume_execution(next_method, next_kwargs, context)
        with explained(load.table, load.run):
            if load.committer == NATIVE:
                self._submitted = load.table, load.run
            try:
                ended = self._end(mark)
                if load.committer != NATIVE:
                    # So that its record does not count as that of a deferred task for a day.
                    self._deferred_s3a_load(load)
                became = f" Its job {ended[0]} was cancelled." if ended else ""
            except Exception as error:
                wait = "the next attempt waits for it."
                became = f" Its job could not be cancelled ({error}): {wait}"
            raise AirflowException(
                "The task was deferred for longer than its execution_timeout, "
                f"{self.execution_timeout}.{became}"
            )

    def on_kill(self) -> None:
        """Cancel the service's job; abort the table's job, or finish it if it had decided."""
        if self._mark is not None:
            self._end(self._mark)

    def _end(self, mark: JobMark) -> list[str]:
        """Cancel the jobs with a mark, as :meth:`on_kill`; return the ids of cancelled jobs."""
        ended = list[str]()
        try:
            for job in self._unfinished(mark):
                if job.mark.series == mark.series:
                    self.log.info("Cancelling the job %s", job.id)
                    self._cancel(job.id)
                    ended.append(job.id)
        finally:
            # This need not wait for the job's end: an abort decision is final, even if the job
            # still runs. Jobs of Hadoop's committers are finished or undone by the next attempt, or
            # by recovery.
            if self._submitted is not None:
                settle_killed(*self._submitted)
        return ended

    @abstractmethod
    def _hand_over(
        self, mark: JobMark, handed: str, package: str | None, settings: Mapping[str, str]
    ) -> None:
        """Complete the request to the service.

        :param mark: must be part of the job's name.
        :param handed: the hand-off for the application.
        :param package: URL of the package, in the format of :attr:`build_package`.
        :param settings: of one of Hadoop's committers, none of which the request has already; empty
            if this package commits.
        """

    def _seen_job(self) -> ServiceJob:
        """Read the settings of a job of Hadoop's committers before it is submitted.

        :raises InvalidInputError: the service would start its driver again, which would append
            twice; or its release cannot run such a job.
        """
        raise NotImplementedError(f"{self.service} has no committer of Hadoop's")

    def _s3a_store(self, load: TableLoad) -> Mapping[str, Any]:
        """Return the store's endpoint, as members of :class:`~.hadoop.settings.S3ASettings`.

        Without them, a service uses AWS S3 in its own region.
        """
        return {}

    @abstractmethod
    def _list_unfinished(self) -> Iterable[tuple[str, str]]:
        """List the ids and names of the service's jobs that have not ended, the newest first."""

    @abstractmethod
    def _wait_for(self, context: Context, job_id: str) -> None:
        """Wait for the end of a job that an earlier attempt has submitted.

        :raises AirflowException: it did not end well.
        :raises TaskDeferred: the triggerer waits for it.
        """

    @abstractmethod
    def _cancel(self, job_id: str) -> None: ...

    def _check_event(self, context: Context, event: dict[str, Any] | None) -> None:
        """Check that the job for which the task was deferred has ended well.

        :param event: of the trigger; each service adds its own members.
        :raises AirflowException: it has not.
        """
        if event is None or event.get("status") != "success":
            said = (event or {}).get("message") or event or "the trigger said nothing"
            raise AirflowException(f"The job did not end well: {said}")

    def _check_arguments(self, parsing: bool = False) -> None:
        super()._check_arguments(parsing)
        self._refuse_credentials()
        if isinstance(self.s3a_options, Mapping):
            check_options(self.s3a_options)
        if self.committer in list(Committer):
            check_word(self.service, self.committer or "")

    def _refuse_credentials(self, secrets: Collection[str] = ()) -> None:
        for name in self.request_fields:
            refuse_in_request(getattr(self, name, None), name, secrets)

    def _load(self, context: Context, load: TableLoad) -> dict[str, Any]:
        if load.committer != NATIVE:
            with final_where_refused():
                check_word(self.service, load.committer)
                encrypt_records(load, self.s3a_options)
        self._mark = _mark_of(load)
        for job in self._unfinished(self._mark):
            self._resume = {"following": str(job.mark)}
            self.log.info(
                "The job %s of attempt %d has not ended, and its worker has gone. Waiting for it; "
                "nothing is submitted meanwhile.",
                job.id,
                job.mark.number,
            )
            report = self._followed(load, job.mark, lambda job=job: self._wait_for(context, job.id))
            if report is not None:
                return report
        report = loaded_before(load, self.on_repeat)
        if report is not None:
            return report
        if load.committer == NATIVE:
            return super()._load(context, load)
        return self._load_by_s3a(context, load)

    def _load_by_s3a(self, context: Context, load: TableLoad) -> dict[str, Any]:
        """Load by one of Hadoop's committers.

        These have no idempotency key, no heads and no decision. So the settings that can be read
        are checked before the submission, and the files after it.
        """
        from ...orchestration.s3a.configuration import committer_settings

        table, run = load.table, load.run
        with final_where_refused():
            self._s3a_load = s3a_load = s3a_load_of(load, self._rival_wait())
            settings = self._s3a_settings(load, s3a_load)
            self._prepare(told(load, s3a_load), settings)
        self._log_opening(
            load, f"{s3a_load.uuid} of {run.idempotency_key}, attempt {run.try_number}"
        )
        with ended_for_good(), final_where_refused():
            in_force = committer_settings(settings)
            with s3a_load.submitted(in_force), explained(table, run), self._ending(self._mark):
                self._resume = {"s3a": asdict(s3a_load.defer())}
                self._execute_parent(context)
            return s3a_load.report()

    def _s3a_settings(self, load: TableLoad, s3a_load: S3ALoad) -> dict[str, str]:
        """Return the settings of one of Hadoop's committers for the request.

        :raises InvalidInputError: the settings in force would lose or double rows; or they cannot
            be read, and ``strict`` is given.
        """
        from ...orchestration.s3a.configuration import check_on_service, render

        asked = asked_of(load, self.s3a_options)
        rendered = render(s3a_load.load, asked, self._s3a_store(load), s3a_load.uuid, False)
        return check_on_service(
            s3a_load.load,
            RULES[self.service],
            self._seen_job(),
            rendered,
            load.directories,
            self.strict,
        )

    def _s3a_completed(
        self, load: TableLoad, deferred: Mapping[str, Any], check: Callable[[], None]
    ) -> dict[str, Any]:
        """Return the report of an attempt with one of Hadoop's committers, whose job has ended."""
        from ...orchestration.s3a.load import DeferredLoad, S3ALoad

        table, run = load.directories, load.run
        with ended_for_good(), final_where_refused():
            submitted = DeferredLoad(deferred["uuid"], tuple(deferred["ended_before"]))
            s3a_load = S3ALoad.resumed(table, run, policy_of(load), submitted)
            with s3a_load.waited_for(), explained(table, run), self._ending(self._mark):
                check()
            return s3a_load.report()

    def _submit(self, context: Context, load: TableLoad) -> None:
        with final_where_refused():
            self._prepare(load, {})
        self._resume = {"earlier": load.earlier, "held": load.held}
        with self._watched(load.table, load.run), self._ending(self._mark):
            self._execute_parent(context)

    def _execute_parent(self, context: Context) -> Any:
        self._keep_lineage_keys(context)
        return super()._execute_parent(context)

    def _keep_lineage_keys(self, context: Context) -> None:
        """Keep a key of OpenLineage's service out of the request of the operator that submits.

        That operator would add it if Airflow is configured to pass on its own transport for events
        (``spark_inject_transport_info``) and that has a key.
        """
        operator: Any = self
        if not getattr(operator, "openlineage_inject_transport_info", False):
            return
        # Imported on use: processes that only parse DAG files need not load it.
        from airflow.providers.common.compat.openlineage.utils import spark

        passed = spark.inject_transport_information_into_spark_properties({}, context)
        keys = sorted(name for name, value in passed.items() if looks_like_credential(name, value))
        if not keys:
            return
        operator.openlineage_inject_transport_info = False
        self.log.warning(
            "The service would keep and show %s, which is a credential. So the job is not told "
            "where OpenLineage's events go; give its image or its cluster these settings.",
            ", ".join(keys),
        )

    def _prepare(self, load: TableLoad, settings: Mapping[str, str]) -> None:
        """Upload the package, and complete the request to the service."""
        assert self._mark is not None, "a job is submitted by _load"
        package = self._package(load)
        self._hand_over(self._mark, load.handoff.pack(), package, settings)
        used = (getattr(self, name) for name in self.connection_fields)
        self._refuse_credentials(load.hook.secrets(*used))

    def _package(self, load: TableLoad) -> str | None:
        """Upload this package's zip or wheel unless it is there, and return its URL.

        The folder's name is a digest of the content, so that a job keeps the version with which it
        began.

        :return: ``None``: the job gets no package.
        :raises InvalidInputError: ``package_location`` is not a place on S3.
        :raises StoreRefusedError: the connection may not write there.
        :raises OutcomeUnknownError: it is not known whether the package is there.
        """
        # Imported on use: processes that only parse DAG files need not load it.
        from ...committer import Table

        if not self.ship_package:
            return None
        table, location = load.table, self.package_location
        place = _PLACE.fullmatch(location or f"s3://{table.root.bucket}/{PACKAGES}")
        if place is None:
            raise InvalidInputError(
                f"package_location={location!r} is no place on S3; nothing was submitted.",
                remedy="Give s3://bucket/prefix, or leave it out for the table's bucket.",
            )
        with tempfile.TemporaryDirectory() as folder:
            made = self.build_package(Path(folder))
            content = made.read_bytes()
        bucket, prefix = place[1], (place[2] or "").strip("/")
        key = f"{prefix}/{sha256(content).hexdigest()[:16]}/{made.name}".lstrip("/")
        url = f"s3://{bucket}/{key}"
        if bucket != table.root.bucket:
            # There is no such table: it only gives access to the other bucket.
            table = Table(f"s3://{bucket}/packages", client=load.hook.get_conn())
            table.driver.encrypt_by_default(load.hook.settings.encryption)
        if not table.run(put_once(key, content)):
            raise OutcomeUnknownError(
                f"Whether the package is at {url} is not known; nothing was submitted.",
                remedy="Let the task be retried; or install the package where the job runs, and "
                "give ship_package=False.",
            )
        return url

    def _unfinished(self, mark: JobMark) -> list[MarkedJob]:
        """Return the service's jobs of this load, of any attempt, that have not ended."""
        found = ((job_id, JobMark.find(name)) for job_id, name in self._list_unfinished())
        return [MarkedJob(job, its) for job, its in found if its and its.load == mark.load]

    def _followed(
        self, load: TableLoad, mark: JobMark, wait: Callable[[], None]
    ) -> dict[str, Any] | None:
        """Wait for the job of an earlier attempt, and return the report of its commit.

        :return: ``None`` if this attempt must not report it, since the task was cleared meanwhile;
            and for Hadoop's committers, whose earlier attempts are finished or undone next.
        :raises AirflowException: the job failed, so this attempt fails; or it has not ended.
        """
        from ...orchestration.s3a.load import open_try

        table, run = load.table, replace(load.run, try_number=mark.number)
        mine = _mark_of(replace(load, run=run)) == mark
        of_s3a = None if load.is_delta else open_try(load.directories, run.idempotency_key, mark)
        try:
            if of_s3a is not None:
                self._wait_by_s3a(replace(load, run=run), mark, of_s3a, wait)
            else:
                self._submitted = table, run
                with self._watched(table, run), self._ending(mark):
                    wait()
        except _UnendedError:
            raise
        except AirflowException as error:
            if mine:
                raise
            self.log.warning("The job of before the task was cleared ended so: %s", error)
        if not mine or of_s3a is not None:
            return None
        done = table.job_of_key(run.idempotency_key)
        earlier = done if done is not None and not run.made(table.owner_of(done)) else None
        waits = load.waiting()
        held = waits.job if waits is not None and not run.made(waits.owner) else None
        return self._outcome(replace(load, earlier=earlier, held=held))

    def _wait_by_s3a(
        self, load: TableLoad, mark: JobMark, submitted: DeferredLoad, wait: Callable[[], None]
    ) -> None:
        """Wait for the job of an earlier attempt with one of Hadoop's committers.

        Heartbeats are sent for that attempt. Its commit is reported later, when all earlier
        attempts are finished or undone.

        :param load: of that attempt.
        """
        from ...orchestration.s3a.load import S3ALoad

        self._s3a_load = s3a_load = S3ALoad.resumed(
            load.directories, load.run, policy_of(load), submitted
        )
        try:
            with s3a_load.waited_for(), explained(load.table, load.run), self._ending(mark):
                wait()
            s3a_load.end()
        finally:
            # A later deferral is not about this attempt, whose record it would change.
            self._s3a_load = None

    @contextmanager
    def _resumed(self, load: TableLoad) -> Iterator[None]:
        """Treat the error of a failed trigger in the block as one of the wait itself."""
        if load.committer == NATIVE:
            with self._watched(load.table, load.run):
                yield
            return
        s3a_load = self._deferred_s3a_load(load)
        waited = nullcontext() if s3a_load is None else s3a_load.waited_for()
        with waited, explained(load.table, load.run):
            yield

    def _deferred_s3a_load(self, load: TableLoad) -> S3ALoad | None:
        """Return the load of the attempt with one of Hadoop's committers for which the task was
        deferred; ``None`` if there is none, or its record cannot be read."""
        from ...orchestration.s3a.load import S3ALoad, deferred_try

        table, run = load.directories, load.run
        try:
            encrypt_records(load, self.s3a_options)
            tried = deferred_try(table, run.idempotency_key)
            return None if tried is None else S3ALoad.resumed(table, run, policy_of(load), tried)
        except ZeroRenameError as error:
            self.log.warning("The record of the attempt could not be read: %s", error)
            return None

    @contextmanager
    def _ending(self, mark: JobMark | None, of_any_attempt: bool = False) -> Iterator[None]:
        """Replace the error of a wait in the block if the job has not ended: the new one says so.

        It is also replaced if it cannot be found out whether the job has ended.

        :param mark: of the job.
        :param of_any_attempt: the wait may have been for a job of another attempt of the load.
        """
        try:
            yield
        except AirflowFailException:
            raise
        except Exception as error:
            try:
                found = () if mark is None else self._unfinished(mark)
                living = [job.id for job in found if of_any_attempt or job.mark == mark]
                became = self._left(living, error)
            except Exception as unknown:
                said = f"{error} Whether the job has ended could not be asked: {unknown}"
                raise _UnendedError(said) from error
            if not living:
                raise
            said = f"The job {living[0]} has not ended, and {became}. {error}"
            raise _UnendedError(said) from error

    def _left(self, living: Sequence[str], error: Exception) -> str:
        """Cancel jobs that have not ended if the service's rule says so; return what was done.

        :param error: the error that ended the wait for them.
        """
        if not (self.cancels_late and _LOOKED_ENOUGH in str(error)):
            return "goes on: the next attempt waits for it"
        for job in living:
            self._cancel(job)
        return "was cancelled"

    @contextmanager
    def _watched(self, table: LoadedTable, run: TaskRun) -> Iterator[None]:
        """Send a job's heartbeats in the block; an error becomes its application's failure."""
        # Imported on use: processes that only parse DAG files need not load it.
        from ...tables import DeltaTable

        has_ended = False
        try:
            waits = bool(self.wait_for_other_runs)
            with explained(table, run, waits=waits), heartbeats(table, run):
                try:
                    yield
                except AirflowException as error:
                    is_known = not isinstance(error, AirflowFailException | UnendedJobError)
                    has_ended = is_known and self.ends_with_job
                    raise
        except Exception:
            if has_ended and isinstance(table, DeltaTable):
                # Its jobs send no heartbeats: for a day nobody could see that they are dead.
                settle_killed(table, run)
            else:
                log_what_is_left(table, run)
            raise


def _mark_of(load: TableLoad) -> JobMark:
    """Return the mark of the job that an attempt submits."""
    run = load.run
    return JobMark.of(load.table.root.url, run.idempotency_key, run.series, run.try_number)
