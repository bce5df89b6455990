"""Load of one asset by a Spark application: its parameters, and its result."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
from dagster._core.errors import DagsterExecutionInterruptedError

from zero_rename.committer.errors import (
    InvalidInputError,
    RefusedError,
    StoreRefusedError,
    SupersededRunError,
    TableNotFoundError,
    TaskResultsError,
)
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.job_spec import (
    Mode,
    OnConflict,
    OnRepeat,
    OnSuperseded,
    SchemaMode,
    SuccessMarkers,
    TableLayout,
)
from zero_rename.committer.format.records.success_marker import COMMITTER as NATIVE
from zero_rename.committer.store.fast_root import FastRoot
from zero_rename.orchestration.load_policies import check_policies
from zero_rename.orchestration.merge_arguments import OF_MERGES, check_merge
from zero_rename.orchestration.runs.heartbeat import heartbeats, wait_for_living
from zero_rename.orchestration.runs.newer_runs import refuse_superseded
from zero_rename.orchestration.runs.outcomes import (
    check_partitions,
    committed_before,
    in_words,
    last_failure,
    log_what_is_left,
    nothing_committed,
    settle_former,
    settle_killed,
    settled,
    tell_narrowing,
    told_failure,
    was_overtaken,
)
from zero_rename.orchestration.runs.partitions import (
    compared_partitions,
    made_partitions,
    sure_partitions,
)
from zero_rename.orchestration.s3a.load import loaded_by_s3a
from zero_rename.tables import DeltaTable
from zero_rename.tables.table_at import directories_at

from ..asset_write import CONTENT, SCHEMA_MODE, asset_paths, earlier_commit, tell
from ..failures import BEFORE_WAIT, final_failure, final_failures
from ..key_paths import Layout, PartitionExpr, layout_of
from ..step_log import told_in
from ..waiting import wait_for_others
from .service_request import check_defaults, completed, service_named

if TYPE_CHECKING:
    from dagster import PipesExecutionResult

    from zero_rename.committer import Committed
    from zero_rename.committer.format.records.failure import Failure as RecordedFailure
    from zero_rename.committer.upkeep.access_policy import Service

    from ..asset_step import AssetStep
    from ..asset_write import AssetTable, WritePolicy

#: Words by which the check of a run's partitions ends before a write.
_UNDONE = ("; nothing was written", " Nothing was written.")
#: Prefixes of metadata that this package writes itself, from the table.
_OURS = ("zero_rename/", "dagster/")


@dataclass(frozen=True)
class SparkLoad(ABC):
    """A load by a Spark application that calls :func:`zero_rename.spark.save`.

    ::

        load = zero_rename.spark_load(context)
        if not load.is_done:
            asked = load.complete_request("emr-serverless", {"applicationId": …})
            with load.submitted():
                client.run(context=context, start_job_run_params=asked)
        return load.result()

    :param paths: the partitions that the run asks for, by their keys.
    """

    step: AssetStep
    table: AssetTable
    policy: WritePolicy
    committer: str
    paths: Mapping[str, str]

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """True if this chain of retries has committed the load: then do not submit anything."""

    @property
    @abstractmethod
    def handoff(self) -> Handoff:
        """The parameters that the application gets: table, partitions, mode, idempotency key,
        owner."""

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables with the application's parameters. None of them is a secret.

        :raises InvalidInputError: there are more partitions than a variable can carry.
        """
        return self.handoff.encode()

    @abstractmethod
    def complete_request(
        self,
        service: Service | str,
        request: Mapping[str, Any],
        *,
        client: Any = None,
        strict: bool = False,
        s3a_options: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Complete the request of a Pipes client to a service that runs the application.

        It gets the application's parameters, and the settings of one of Hadoop's committers, which
        are checked before.

        :param service: ``emr-serverless``, ``emr-steps``, ``emr-containers`` or ``glue``.
        :param request: of the client, for ``start_job_run``, on ``emr-steps`` for ``run_job_flow``;
            it is not changed.
        :param client: boto3's client of the service, such as the ``client`` of the Pipes client. It
            is asked what the service's job will run on; ``None``: nothing is asked. For a native
            load only Glue is asked, whose job may have settings that those of the request replace.
        :param strict: refuse if something of that cannot be found out; else it is logged, and
            ``save()`` checks in the job.
        :param s3a_options: for Hadoop's committers, members of
            :class:`~zero_rename.s3a.hadoop.settings.S3ASettings` such as ``threads``.
        :raises Failure: the service cannot carry the request out, or settings would lose or double
            rows. Nothing was submitted.
        """

    @abstractmethod
    def submitted(self) -> AbstractContextManager[None]:
        """Return a context in which the application runs and its jobs are kept alive.

        :raises Failure: the application failed and said why. It is not retried if running the same
            again cannot correct the failure, or would hide it.
        """

    @abstractmethod
    def result(self, reported: Iterator[PipesExecutionResult] | Any = ()) -> dg.MaterializeResult:
        """Return what the application committed, as the store shows it. The numbers of each
        partition are in its event.

        :param reported: ``get_results()`` of a Pipes client's invocation; its own metadata and
            checks are kept.
        :raises RefusedError: the application has committed nothing.
        :raises Failure: it has changed partitions that the run does not ask for.
        :raises VerificationError: with one of Hadoop's committers, the files there are not those
            that the job should leave.
        """

    def told(self) -> Handoff:
        """Return the parameters that every application gets."""
        owner = self.step.owner
        return Handoff(
            table=self.table.root,
            committer=self.committer,
            mode=self.policy.parsed_mode,
            partitions=None if self.step.keys is None else tuple(self.paths.values()),
            encryption=self.policy.encryption,
            idempotency_key=self.step.idempotency_key,
            dag=owner.dag_id,
            run=owner.run_id,
            task=owner.task_id,
            try_number=owner.try_number,
            series=owner.series,
        )

    def materialized(self, reported: Iterator[PipesExecutionResult] | Any) -> dg.MaterializeResult:
        """Return the result of a step whose events are written, with what the application itself
        reported."""
        results, metadata = list(reported), dict[str, Any]()
        for result in results:
            if isinstance(result, dg.MaterializeResult):
                metadata |= result.metadata or {}
        return dg.MaterializeResult(
            asset_key=self.step.asset,
            data_version=self.step.step.get_data_version(self.step.asset),
            metadata={k: v for k, v in metadata.items() if not k.startswith(_OURS)},
            check_results=[r for r in results if isinstance(r, dg.AssetCheckResult)],
        )

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Let a failure of the application in the block fail the step with the application's own
        report, if it made one."""
        try:
            yield
        except Exception as error:
            told = told_failure(self.table, self.step)
            if told is None:
                raise
            if self._is_to_be_retried(told):
                raise dg.Failure(description=self._in_words(told)) from error
            raise self._final_failure(told) from error

    def refuse_retry(self) -> None:
        """Refuse to submit if an earlier attempt's application recorded a final failure, and its
        worker had died, so that Dagster does not know of it.

        This attempt would fail again. Or, after a conflict, it would begin after the other job's
        commit and overwrite its rows. It takes one request, except in the first attempt.

        :raises Failure: there is such a failure.
        """
        step, table = self.step, self.table
        told = None if step.is_first else last_failure(table, step)
        if told is None or step.made(told.owner) or not step.retries(told.owner):
            return
        if not self._is_to_be_retried(told) and not step.has_failed_by(told, table.root):
            raise self._final_failure(
                told,
                f"Not submitted. The application of attempt {told.owner.try_number} in run "
                f"{told.owner.run_id} failed, and its worker had died: ",
                " To load again, re-execute the run.",
            )

    def _is_to_be_retried(self, told: RecordedFailure) -> bool:
        return not told.final or self._loads_on_top(told)

    def _loads_on_top(self, told: RecordedFailure) -> bool:
        """Return whether the next attempt waits for the runs that this failure is about."""
        return self.policy.waits and was_overtaken(told, self.table)

    def _in_words(self, told: RecordedFailure) -> str:
        return in_words(told, self.table, BEFORE_WAIT if self._loads_on_top(told) else None)

    def _final_failure(
        self, told: RecordedFailure, before: str = "", after: str = ""
    ) -> dg.Failure:
        text = f"{before}{self._in_words(told)}{after}"
        return final_failure(self.step.step, text, told.error, told, self.table.root.url)


@dataclass(frozen=True)
class NativeLoad(SparkLoad):
    """A load whose rows this package commits.

    :param earlier: what this chain of retries has committed before.
    :param before: the job that did this load last, in any run or attempt.
    """

    earlier: Committed | None
    before: str | None
    _began: float = field(default_factory=time.monotonic)

    @staticmethod
    def of(step: AssetStep, table: AssetTable, policy: WritePolicy) -> NativeLoad:
        """Prepare a load; first find out what the chain of retries has committed.

        Waits for an application of the chain that has outlived its worker.

        :raises InvalidInputError: the table cannot have the run's partition keys as partitions, or
            this very step has written it before; or the application cannot get a policy. Nothing
            was submitted.
        :raises SupersededRunError: newer runs have loaded the same partitions, or a conflict over
            them was settled against this run; nothing was submitted.
        :raises Failure: the application of an earlier attempt, whose worker had died, recorded a
            final failure; nothing was submitted.
        """
        check_merge(vars(policy), NATIVE)
        paths = run_paths(step, table, policy)
        check_application_policies(policy, NATIVE, tuple(paths.values()))
        wait_for_living(table, step)
        _refuse_hadoops(step, table, policy)
        earlier = earlier_commit(step, table, lambda: paths)
        before = table.job_of_key(step.idempotency_key)
        load = NativeLoad(step, table, policy, NATIVE, paths, earlier, before)
        if not load.is_done:
            load.refuse_retry()
            load._give_way()
        return load

    def _give_way(self) -> None:
        """Wait for other runs, if the policy says so; then refuse the load if one of them wins."""
        said, table, policy = self.handoff, self.table, self.policy
        tried = self.step.try_number > 1
        key, cleared = self.step.idempotency_key, self.step.owner.cleared
        planned = tell_narrowing(table, key, self.before, tried, cleared)
        makes, longest = made_partitions(said.partitions or (), planned), policy.wait_for_other_runs
        mode, about = policy.parsed_mode, policy.on_conflict
        waited = wait_for_others(self.step, table, makes, longest, mode, about)
        written = partial(sure_partitions, table, said.partitions)
        try:
            refuse_superseded(table, said, partial(compared_partitions, written, planned))
        except SupersededRunError as error:
            if waited:
                error.message = f"After {waited:.0f} s of waiting for other runs: {error.message}"
            raise

    @property
    def is_done(self) -> bool:
        """True if this chain of retries has committed the load."""
        return self.earlier is not None

    @property
    def handoff(self) -> Handoff:
        """The parameters that the application gets."""
        policy, superseded = self.policy, self.policy.on_superseded
        delete_when, data_root = policy.delete_when, policy.data_root
        markers = policy.success_markers
        assert delete_when is None or isinstance(delete_when, str)  # It is from the metadata.
        return replace(
            self.told(),
            # A table without partitions is emptied by a load without rows, as a day would be.
            replace_table=True
            if policy.parsed_mode is Mode.REPLACE and self.step.keys is None
            else None,
            on_conflict=OnConflict(policy.on_conflict),
            on_superseded=OnSuperseded(superseded) if superseded else None,
            success_markers=SuccessMarkers(markers) if markers else None,
            run_rank=self.step.run_rank(self.paths),
            data_root=None if data_root is None else FastRoot.parse(data_root),
            layout=TableLayout(policy.layout) if policy.is_delta else None,
            code_version=self.step.code_version,
            merge_on=policy.merge_on,
            delete_when=delete_when,
            latest_by=policy.latest_by,
            across_partitions=policy.across_partitions or None,
            on_repeat=OnRepeat.REPLACE_OWN,
        )

    def complete_request(
        self,
        service: Service | str,
        request: Mapping[str, Any],
        *,
        client: Any = None,
        strict: bool = False,
        s3a_options: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Complete a request as described in :meth:`SparkLoad.complete_request`. A native load adds
        only the parameters; it needs no settings."""
        with final_failures(self.step.step):
            named = service_named(service)
            check_defaults(named, request, client)
            return completed(named, request, self.handoff.pack(), {}, self.policy.secrets)

    @contextmanager
    def submitted(self) -> Iterator[None]:
        """Keep the application's jobs alive while the block runs; clean up after them if the run is
        terminated."""
        try:
            with told_in(self.step.step.log), self.explained():
                try:
                    with heartbeats(self.table, self.step):
                        yield
                except Exception:
                    log_what_is_left(self.table, self.step)
                    if stands := committed_before(self.table, self.step):
                        self.step.step.log.warning(
                            f"{self.table.root.url}: {stands} A retry reports that job."
                        )
                    raise
        except DagsterExecutionInterruptedError:
            with told_in(self.step.step.log):
                settle_killed(self.table, self.step)
            raise

    def result(self, reported: Iterator[PipesExecutionResult] | Any = ()) -> dg.MaterializeResult:
        """Report what the application committed, as the table shows it."""
        committed = self.earlier or self._committed()
        if self.policy.is_delta:
            settle_former(self.table, self.step)
        try:
            paths = self._paths_by_now(committed)
            seconds = time.monotonic() - self._began
            tell(self.step, self.table, committed, paths, self.policy, seconds)
            check_partitions(self.table, committed, paths.values(), self.before)
        except TaskResultsError as error:
            # A retry would only report the commit.
            name, root = type(error).__name__, self.table.root.url
            raise final_failure(self.step.step, str(error), name, error, root) from error
        return self.materialized(reported)

    def _paths_by_now(self, committed: Committed) -> dict[str, str]:
        """Return the partitions that the run asks for, by their keys. If the application has made
        the table, its columns are known by now.

        :raises TaskResultsError: the table cannot have the asset's keys as partitions.
        """
        try:
            return run_paths(self.step, self.table, self.policy)
        except InvalidInputError as error:
            why = error.message
            for undone in _UNDONE:
                why = why.replace(undone, "")
            raise TaskResultsError(
                "The job is committed, and the asset cannot have the table that its application "
                f"has made: {why.removesuffix('.')}.",
                table=committed.table,
                job=committed.job,
                remedy=f"{error.remedy or ''} What the job has written stays until then.".strip(),
            ) from error

    def _committed(self) -> Committed:
        job = self.table.job_of_key(self.step.idempotency_key)
        if job is None or job == self.before:
            raise nothing_committed(self.table, self.step, self.before)
        return settled(self.table, job)


def check_application_policies(
    policy: WritePolicy, committer: str, partitions: Sequence[str]
) -> None:
    """Refuse policies that an application cannot get or its committer cannot keep.

    :param partitions: those that the run asks for; empty: any.
    :raises InvalidInputError: there is one; the error names it.
    """
    changes = policy.schema_mode is not SchemaMode.KEEP
    of_rows = {SCHEMA_MODE: policy.schema_mode if changes else None, CONTENT: policy.content}
    for name, value in of_rows.items():
        if value is not None:
            option = {SCHEMA_MODE: "schemaMode"}.get(name, name)
            raise InvalidInputError(
                f"The asset's metadata has {name}={str(value)!r}, which is for rows that its "
                "function returns, and a Spark application writes it. Nothing was submitted.",
                remedy=f"Let the application say it, by save(options={{{option!r}: "
                f"{str(value)!r}}}).",
            )
    names = (*OF_MERGES, "on_conflict", "on_superseded", "data_root", "success_markers")
    is_delta = {"layout": TableLayout.DELTA if policy.is_delta else None}
    registration = policy.registration
    said = {name: getattr(policy, name) for name in names}
    said |= {"mode": policy.parsed_mode, "partitions": partitions, **is_delta}
    said["catalog"] = None if registration is None else registration.catalog
    check_policies(committer, said)


def _refuse_hadoops(step: AssetStep, table: AssetTable, policy: WritePolicy) -> None:
    """Refuse a load that this chain of retries has made by one of Hadoop's committers.

    :raises RefusedError: it has.
    """
    mode, here = policy.parsed_mode, directories_at(table)
    try:
        report = loaded_by_s3a(here, step, mode, "auto", has_log=isinstance(table, DeltaTable))
    except StoreRefusedError:
        return  # Without the right to read the ledger, no attempt was put on record there.
    if report is None:
        return
    raise RefusedError(
        f"The {report['committer']} committer has committed this load, in an earlier attempt of "
        "this chain of retries. Nothing was submitted.",
        table=table.root.url,
        job=report["job"],
        remedy=f"Retry it with committer={report['committer']!r}, which reports that commit; or "
        "start a new run, which loads again.",
    )


def run_paths(step: AssetStep, table: AssetTable, policy: WritePolicy) -> dict[str, str]:
    """Return the partitions that a run asks for, by their keys. The table need not exist yet.

    :raises InvalidInputError: the table cannot have the keys as partitions.
    """
    return asset_paths(step, policy, _layout(step, table, policy.partition_expr))


def _layout(step: AssetStep, table: AssetTable, expr: PartitionExpr | None) -> Layout:
    """Return the columns of the table. If the application is to make it, these are the columns that
    hold the keys, and their types are not known yet."""
    try:
        return layout_of(table)
    except TableNotFoundError:
        named = [expr] if isinstance(expr, str) else list((expr or {}).values())
        if isinstance(step.partitions_def, dg.MultiPartitionsDefinition):
            named += [dimension.name for dimension in step.partitions_def.partitions_defs]
        elif expr is None:
            named += [key for key in step.keys or () if "=" in key]
        columns = {part.partition("=")[0] for name in named for part in name.split("/")}
        return Layout(pa.schema([(name, pa.string()) for name in sorted(columns)]), None)
