"""Operators that publish or abort jobs of loads that hold their rows back."""

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
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from ..tables import DeltaTable


class PublishLoadOperator(TaskArguments, BaseOperator):
    """Publish a Delta table's job whose rows a load with ``publish=False`` has held back.

    One entry of the table's log makes the rows visible. The conflict test with commits since the
    job opened is made now. Returns (XCom) the same as a load; ``repeated`` is true if the job was
    published before, for example by an earlier attempt. The asset events of the load are made here.
    The task fails without a retry if such a commit conflicts, if the job was aborted, or if its run
    was loaded again.

    :param table: the table, by URL or by name below the connection's table root. (templated)
    :param job: the job's id, as the load returns it: ``{{ ti.xcom_pull('load')['job'] }}``.
        (templated)
    :param catalog: the catalog in which the table is registered after the job is published, as in
        :class:`.loading.load.LoadOperator`. The load could not register new columns of its job.
        (templated)
    :param asset_partitions: as in :class:`.loading.load.LoadOperator`. (templated)
    :param outlets: as in :class:`.loading.load.LoadOperator`.
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
        """Publish the job, and make the events of the outlets.

        :raises AirflowFailException: the job is refused, and would be in a retry, too.
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
        """Return the datasets of the load for the OpenLineage provider, if it is installed.

        The load itself reports none for rows that it holds back.
        ``airflow.providers.openlineage.extractors.base`` defines name and call.
        """
        if self._published is None:
            return None
        # Imported on use: processes that only parse DAG files need not load it.
        from ..provider.assets.lineage import job_lineage

        return job_lineage(*self._published, self.inlets)


class AbortLoadOperator(TaskArguments, BaseOperator):
    """Abort a Delta table's job whose rows a load with ``publish=False`` has held back.

    Its files are removed. It is for rows that an audit rejects: put it after the audit, with the
    trigger rule ``one_failed``. Returns (XCom) ``table`` and ``job``. If the job was aborted
    before, nothing changes. If it is published, it stays as it is, and the task fails without a
    retry: undo the job to remove its rows.

    :param table: the table, by URL or by name below the connection's table root. (templated)
    :param job: the job's id, as the load returns it. Empty if the load has failed: then the task is
        skipped. ``{{ (ti.xcom_pull('load') or {}).get('job', '') }}``. (templated)
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

        :raises AirflowFailException: the job is published, or it is not known.
        :raises AirflowSkipException: the load has left no job.
        """
        with final_where_refused(), ended_for_good():
            self.read_arguments()
            if not self.job:
                raise AirflowSkipException("The load has left no job; there is none to abort.")
            table = ZeroRenameHook(self.zero_rename_conn_id).get_delta_table(self.table)
            table.abort(self.job)
        self.log.info("Aborted %s of %s: nobody sees its rows", self.job, table.root.url)
        return {"table": table.root.url, "job": self.job}
