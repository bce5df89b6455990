"""Jobs of loads that hold their rows back: published, so that everybody sees them, or aborted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSkipException,
    BaseOperator,
)

from ..committer.errors import InvalidInputError, JobFencedError
from ..orchestration.runs.arguments import Parser, read_flag, read_text
from ..orchestration.runs.reports import commit_report, summary
from ..orchestration.table_names import check_catalog, check_table_name
from ..orchestration.templates import is_known
from ..provider.assets.outlets import UnsaidOutlets, default_outlets, tell_outlets
from ..provider.failures import ended_for_good, final_where_refused
from ..provider.hooks import DEFAULT_CONN_ID, ZeroRenameHook
from ..provider.task_arguments import TaskArguments

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage  # pyright: ignore
    from airflow.sdk import Context

    from ..tables import DeltaTable


class PublishLoadOperator(TaskArguments, BaseOperator):
    """Publish a job of a Delta table that a load with ``publish=False`` has left, by one entry of
    the table's log: what came since the job opened is judged now.

    Returns (XCom) what a load returns, with ``repeated`` where the job was published before, as by
    an earlier try. The asset events of the load are told here. A conflict with what came since is
    final, and so is a job that was aborted or whose run was loaded again.

    :param table: the table, whole or below the connection's table root. (templated)
    :param job: the job's id, as the load returns it: ``{{ ti.xcom_pull('load')['job'] }}``.
        (templated)
    :param catalog: where the table is registered once the job is published: the load could not tell
        the columns that its job brings. As of :class:`.loading.load.LoadOperator`. (templated)
    :param asset_partitions: as of :class:`.loading.load.LoadOperator`. (templated)
    :param outlets: as there.
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = (
        *("table", "job", "catalog", "asset_partitions", "zero_rename_conn_id"),
    )
    parsers: ClassVar[Mapping[str, Parser]] = {
        **dict.fromkeys(("table", "job", "catalog", "zero_rename_conn_id"), read_text),
        "asset_partitions": read_flag,
    }
    ui_color = "#e6f2ec"

    def __init__(
        self,
        *,
        table: str,
        job: str,
        catalog: str | None = None,
        asset_partitions: bool | str | None = None,
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        outlets: Any = UnsaidOutlets(),  # noqa: B008 - never changed
        **kwargs: Any,
    ) -> None:
        if isinstance(outlets, UnsaidOutlets):
            outlets = default_outlets(table)
        super().__init__(outlets=outlets, **kwargs)
        self.table = table
        self.job = job
        self.catalog = catalog
        self.asset_partitions: Any = asset_partitions
        self.zero_rename_conn_id = zero_rename_conn_id
        self._published: tuple[DeltaTable, dict[str, Any]] | None = None
        self.note_arguments()
        if is_known(table) or not table:
            check_table_name(table)
        if catalog and is_known(catalog):
            check_catalog(catalog)

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish the job, and tell the outlets.

        :raises AirflowFailException: it is refused, and a retry would be, too.
        """
        with final_where_refused(), ended_for_good():
            self.read_arguments()
            if not self.job:
                raise InvalidInputError(
                    "job names no job: the load has left none. Nothing was published.",
                    remedy="See what the load has returned, and that its trigger rules let this "
                    "task run only after it.",
                )
            hook = ZeroRenameHook(self.zero_rename_conn_id)
            if catalog := hook.catalog_of(self.catalog):
                check_catalog(catalog)
            table = hook.get_delta_table(self.table)
            try:
                committed = table.publish(self.job)
            except JobFencedError as error:
                raise AirflowFailException(str(error)) from error
        report = commit_report(committed)
        before = "before " if committed.repeated else ""
        self.log.info("Published %s%s", before, summary(report))
        if (registered := hook.register(table, catalog)) is not None:
            report["catalog"] = registered
        tell_outlets(self, context, report)
        self._published = table, report
        return report

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage | None:
        """What the OpenLineage provider, where it is installed, tells of this task: as of a load,
        which tells nothing of rows that it holds back.

        Named and called as ``airflow.providers.openlineage.extractors.base`` says.
        """
        if self._published is None:
            return None
        # On use: DAG files are parsed by processes that tell nothing.
        from ..provider.assets.lineage import job_lineage

        return job_lineage(*self._published, self.inlets)


class AbortLoadOperator(TaskArguments, BaseOperator):
    """Abort a job of a Delta table that a load with ``publish=False`` has left, with its files, as
    where an audit rejects its rows: give it the trigger rule ``one_failed`` behind the audit.

    Returns (XCom) ``table`` and ``job``. A job that was aborted before stays so. One that is
    published is left as it is, and the task fails for good: undo it to take it back.

    :param table: the table, whole or below the connection's table root. (templated)
    :param job: the job's id, as the load returns it, or nothing where the load has failed: the task
        is then skipped. ``{{ (ti.xcom_pull('load') or {}).get('job', '') }}``. (templated)
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = ("table", "job", "zero_rename_conn_id")
    parsers: ClassVar[Mapping[str, Parser]] = dict.fromkeys(template_fields, read_text)
    ui_color = "#f2e6e6"

    def __init__(
        self, *, table: str, job: str, zero_rename_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.job = job
        self.zero_rename_conn_id = zero_rename_conn_id
        self.note_arguments()
        if is_known(table) or not table:
            check_table_name(table)

    def execute(self, context: Context) -> dict[str, Any]:
        """Abort the job.

        :raises AirflowFailException: it is published, or no such job is known.
        :raises AirflowSkipException: there is none.
        """
        with final_where_refused(), ended_for_good():
            self.read_arguments()
            if not self.job:
                raise AirflowSkipException("The load has left no job; there is none to abort.")
            table = ZeroRenameHook(self.zero_rename_conn_id).get_delta_table(self.table)
            table.abort(self.job)
        self.log.info("Aborted %s of %s: nobody sees its rows", self.job, table.root.url)
        return {"table": table.root.url, "job": self.job}
