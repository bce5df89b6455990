"""Load of one asset by a Spark application: what it is told, and what became of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
from dagster._core.errors import DagsterExecutionInterruptedError

from zero_rename.committer.errors import TableNotFoundError
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.job_spec import Mode, OnConflict, OnRepeat, OnSuperseded, Readers
from zero_rename.committer.format.records.success_marker import COMMITTER as NATIVE
from zero_rename.committer.store.fast_root import FastRoot
from zero_rename.orchestration.merge_arguments import check_merge
from zero_rename.orchestration.runs.heartbeat import heartbeats, wait_for_living
from zero_rename.orchestration.runs.outcomes import (
    check_partitions,
    in_words,
    log_what_is_left,
    nothing_committed,
    settle_killed,
    settled,
    told_failure,
)
from zero_rename.s3a.hadoop.settings import check_unwatched

from ..asset_write import asset_paths, earlier_commit, tell
from ..failures import final_failure
from ..key_paths import Layout, PartitionExpr

if TYPE_CHECKING:
    from dagster import PipesExecutionResult

    from zero_rename.committer import Committed, Table

    from ..asset_step import AssetStep
    from ..asset_write import WritePolicy

#: Members of metadata that this package writes itself, from what the table says.
_OURS = ("zero_rename/", "dagster/")


@dataclass(frozen=True)
class SparkLoad:
    """A load that an application makes, which calls :func:`zero_rename.spark.save`.

    ::

        load = zero_rename.spark_load(context)
        if not load.is_done:
            with load.submitted():
                client.run(context=context, env=load.variables, …)
        return load.result()

    :param paths: the partitions that the run asks for, by their keys.
    :param earlier: what this chain of retries has committed before.
    :param before: the job that last did this load, whoever ran it.
    """

    step: AssetStep
    table: Table
    policy: WritePolicy
    committer: str
    paths: Mapping[str, str]
    earlier: Committed | None
    before: str | None
    _began: float = field(default_factory=time.monotonic)

    @staticmethod
    def of(step: AssetStep, table: Table, policy: WritePolicy, committer: str) -> SparkLoad:
        """Look at what the chain of retries has done. Waits for an application of it that has
        outlived its worker.

        :raises InvalidInputError: the run's partition keys are no partitions of the table, or this
            very step has written it before; nothing was submitted.
        """
        check_merge(vars(policy), committer)
        # Its default, fail, is about data that functions of assets return.
        asked = policy.on_conflict == OnConflict.NEWEST_RUN
        about_runs = {"on_conflict": policy.on_conflict if asked else None}
        check_unwatched(committer, {**about_runs, "on_superseded": policy.on_superseded})
        paths = asset_paths(step, policy, _layout(step, table, policy.partition_expr))
        wait_for_living(table, step)
        earlier, before = earlier_commit(step, table), table.job_of_key(step.idempotency_key)
        return SparkLoad(step, table, policy, committer, paths, earlier, before)

    @property
    def is_done(self) -> bool:
        """Whether this chain of retries has committed the load: nothing is to be submitted."""
        return self.earlier is not None

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables by which the application is told table, partitions, mode,
        idempotency key and who runs it. None of them is a secret.

        :raises InvalidInputError: more partitions than a variable can carry.
        """
        owner, replacing = self.step.owner, self.policy.parsed_mode is Mode.REPLACE
        native, superseded = self.committer == NATIVE, self.policy.on_superseded
        delete_when, data_root = self.policy.delete_when, self.policy.data_root
        assert delete_when is None or isinstance(delete_when, str)  # It is of the metadata.
        return Handoff(
            table=self.table.root,
            committer=self.committer,
            mode=self.policy.parsed_mode,
            partitions=None if self.step.keys is None else tuple(self.paths.values()),
            # Of a table without partitions, which is emptied as a day without rows is.
            replace_table=True if replacing and self.step.keys is None else None,
            on_conflict=OnConflict(self.policy.on_conflict) if native else None,
            on_superseded=OnSuperseded(superseded) if superseded else None,
            run_rank=self.step.run_rank(self.paths) if native else None,
            readers=None if self.policy.readers is None else Readers(self.policy.readers),
            data_root=None if data_root is None else FastRoot.parse(data_root),
            encryption=self.policy.encryption,
            # Hadoop's committers would leave no record of it.
            code_version=self.step.code_version if native else None,
            merge_on=self.policy.merge_on,
            delete_when=delete_when,
            latest_by=self.policy.latest_by,
            across_partitions=self.policy.across_partitions or None,
            idempotency_key=self.step.idempotency_key,
            on_repeat=OnRepeat.REPLACE_OWN,
            dag=owner.dag_id,
            run=owner.run_id,
            task=owner.task_id,
            try_number=owner.try_number,
            series=owner.series,
        ).encode()

    @contextmanager
    def submitted(self) -> Iterator[None]:
        """Around the application: its jobs are kept alive, and settled where the run is terminated.

        :raises Failure: the application failed and said why; not retried where running the same
            again cannot mend it, or would hide it.
        """
        try:
            with heartbeats(self.table, self.step):
                yield
        except DagsterExecutionInterruptedError:
            settle_killed(self.table, self.step)
            raise
        except Exception as error:
            log_what_is_left(self.table, self.step)
            told = told_failure(self.table, self.step)
            if told is None:
                raise
            text = in_words(told, self.table)
            if not told.final:
                raise dg.Failure(description=text) from error
            root = self.table.root.url
            raise final_failure(self.step.step, text, told.error, told, root) from error

    def result(self, reported: Iterator[PipesExecutionResult] | Any = ()) -> dg.MaterializeResult:
        """What the application committed, by what the table says: each partition's numbers are in
        its event.

        :param reported: ``get_results()`` of a Pipes client's invocation, whose own metadata and
            checks are kept.
        :raises RefusedError: it has committed nothing.
        :raises TaskResultsError: it has changed partitions that the run does not ask for.
        """
        committed = self.earlier or self._committed()
        seconds = time.monotonic() - self._began
        tell(self.step, self.table, committed, self.paths, self.policy, seconds)
        check_partitions(self.table, committed, self.paths.values())
        metadata: dict[str, Any] = {}
        for result in reported:
            if isinstance(result, dg.MaterializeResult):
                metadata |= result.metadata or {}
        return dg.MaterializeResult(
            asset_key=self.step.asset,
            data_version=self.step.step.get_data_version(self.step.asset),
            metadata={k: v for k, v in metadata.items() if not k.startswith(_OURS)},
            check_results=[r for r in reported if isinstance(r, dg.AssetCheckResult)],
        )

    def _committed(self) -> Committed:
        job = self.table.job_of_key(self.step.idempotency_key)
        if job is None or job == self.before:
            raise nothing_committed(self.table, self.step, self.before)
        return settled(self.table, job)


def _layout(step: AssetStep, table: Table, expr: PartitionExpr | None) -> Layout:
    """The table's; of one that the application is to make, the columns that hold the keys, whose
    types nobody knows yet."""
    try:
        return Layout(table.schema, table.partition_by)
    except TableNotFoundError:
        named = [expr] if isinstance(expr, str) else list((expr or {}).values())
        if isinstance(step.partitions_def, dg.MultiPartitionsDefinition):
            named += [dimension.name for dimension in step.partitions_def.partitions_defs]
        elif expr is None:
            named += [key for key in step.keys or () if "=" in key]
        columns = {part.partition("=")[0] for name in named for part in name.split("/")}
        return Layout(pa.schema([(name, pa.string()) for name in sorted(columns)]), None)
