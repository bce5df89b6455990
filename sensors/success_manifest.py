"""Wait until a particular job is committed and its files can be listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSkipException,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)
from airflow.sdk.exceptions import AirflowSensorTimeout

from ..committer.errors import InvalidInputError, StoreUnreachableError
from ..orchestration.job_query import FAILED, READY, WAITING, JobQuery, QueryResult
from ..orchestration.runs.task_run import once_key
from ..orchestration.table_names import check_table_name
from ..provider.hooks import DEFAULT_CONN_ID, ZeroRenameHook
from ..provider.task_context import task_run
from ..provider.task_states import states_of_tasks
from ..provider.triggers import SuccessManifestTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..committer import Table


class SuccessManifestSensor(BaseSensorOperator):
    """Wait for *this* job of a table, never for a file to exist.

    Give one of ``job``, ``upstream_task_id``, ``once``, or ``partition`` with
    ``newer_than_epoch``. Ready means committed and closed: readers that list see every file,
    and none that the job replaced. An aborted job, or one with too few rows, fails the task
    without waiting for the timeout.

    Returns (XCom) the job's report, as the submit operator's; with ``partition`` of that one
    alone. A partition that was emptied is ready with ``rows`` 0.

    :param table: ``s3://bucket/prefix``, or a name below the connection's table root.
        (templated)
    :param job: the job's id, as ``"{{ ti.xcom_pull('load')['job'] }}"``. (templated)
    :param upstream_task_id: the task of this DAG run whose job is meant. (templated)
    :param upstream_map_index: its map index, where it is mapped.
    :param once: a run's key, for the task of another DAG:
        ``"{{ macros.zero_rename.once_key('flights', run_id, 'load') }}"``. (templated)
    :param partition: wait for this partition; the job has to have changed it. (templated)
    :param newer_than_epoch: any job that moved ``partition`` beyond this epoch; 0 waits for the
        first one ever. (templated)
    :param min_rows: fail when fewer rows were committed.
    :param apply: finish a committed job whose owner died, rather than wait for maintenance;
        needs the right to write.
    :param on_foreign_marker: where nothing is committed and a ``_SUCCESS`` of another committer
        lies there, ``wait`` (and say so) or ``fail``.
    :param deferrable: wait in the triggerer, without a worker slot.
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = (
        "table",
        "job",
        "upstream_task_id",
        "once",
        "partition",
        "newer_than_epoch",
        "zero_rename_conn_id",
    )
    ui_color = "#e6f2ec"

    def __init__(
        self,
        *,
        table: str,
        job: str | None = None,
        upstream_task_id: str | None = None,
        upstream_map_index: int = -1,
        once: str | None = None,
        partition: str | None = None,
        newer_than_epoch: int | str | None = None,
        min_rows: int | None = None,
        apply: bool = False,
        on_foreign_marker: str = "wait",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.job = job
        self.upstream_task_id = upstream_task_id
        self.upstream_map_index = upstream_map_index
        self.once = once
        self.partition = partition
        self.newer_than_epoch = newer_than_epoch
        self.min_rows = min_rows
        self.apply = apply
        self.on_foreign_marker = on_foreign_marker
        self.deferrable = deferrable
        self.zero_rename_conn_id = zero_rename_conn_id
        self._explained = ""
        self._table: Table | None = None
        self._check_arguments()

    def execute(self, context: Context) -> Any:
        """Look once; then wait in the triggerer, or here.

        :raises AirflowSensorTimeout: names what was waited for.
        """
        if not self.deferrable:
            with self._named(context):
                return super().execute(context)
        result = self.poke(context)
        if result.is_done:
            return result.xcom_value
        self.defer(
            trigger=SuccessManifestTrigger(
                query=self._query(context).as_dict(),
                zero_rename_conn_id=self.zero_rename_conn_id,
                poke_interval=self.poke_interval,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once.

        :raises AirflowFailException: waiting is in vain, or the call cannot be right.
        """
        try:
            query = self._query(context)
            if self._table is None:
                self._table = ZeroRenameHook(self.zero_rename_conn_id).get_table(query.table)
            # Before the look: a task that has ended by now has committed by now.
            ask = getattr(context["ti"], "get_task_states", None)  # pyright: ignore
            state = states_of_tasks(ask, [query.once] if query.once else ()).get(query.once or "")
            result = query.after(query.ask(self._table), state)
        except InvalidInputError as error:
            raise AirflowFailException(str(error)) from error
        except StoreUnreachableError as error:
            result = QueryResult(WAITING, str(error))
        return self._judge(result)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any] | None:
        """What the trigger answered.

        :raises AirflowFailException: waiting is in vain.
        """
        return self._judge(QueryResult(**event)).xcom_value

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """After the triggerer: the answer, or the time-out.

        :raises AirflowSensorTimeout: names what was waited for.
        """
        with self._named(context):
            return super().resume_execution(next_method, next_kwargs, context)

    @contextmanager
    def _named(self, context: Context) -> Iterator[None]:
        """Let a time-out in the block name table and job, and what was seen last."""
        try:
            yield
        except (AirflowSensorTimeout, AirflowSkipException) as error:
            cause = error.__cause__ if isinstance(error, AirflowSkipException) else None
            seen = "" if isinstance(cause, AirflowFailException) else f" {self._explained}"
            try:
                query = self._query(context)
            except InvalidInputError:
                raise error from None
            raise type(error)(
                f"{cause or error} Waited for {query.subject} of {query.table}.{seen}".rstrip()
            ) from error

    def _judge(self, result: QueryResult) -> PokeReturnValue:
        if result.state == FAILED:
            raise AirflowFailException(result.explanation)
        if result.explanation != self._explained:
            self._explained = result.explanation
            self.log.info("%s: %s", result.state.capitalize(), result.explanation)
        return PokeReturnValue(result.state == READY, result.report)

    def _query(self, context: Context) -> JobQuery:
        """The rendered arguments as a query.

        :raises InvalidInputError: they do not say which job is meant.
        """
        once = self.once
        if self.upstream_task_id is not None:
            if once is not None:
                raise _said_twice()
            run = task_run(context)
            once = once_key(run.dag_id, run.run_id, self.upstream_task_id, self.upstream_map_index)
        table = ZeroRenameHook(self.zero_rename_conn_id).table_url(self.table)
        query = self._asked(table, once, _epoch(self.newer_than_epoch))
        query.check()
        return query

    def _asked(self, table: str, once: str | None, epoch: int | None) -> JobQuery:
        return JobQuery(
            table=table,
            job=self.job,
            once=once,
            partition=self.partition,
            newer_than_epoch=epoch,
            min_rows=self.min_rows,
            apply=self.apply,
            on_foreign_marker=self.on_foreign_marker,
        )

    def _check_arguments(self) -> None:
        """While a DAG file is parsed: what no template hides.

        :raises InvalidInputError: an argument that cannot be right.
        """
        if not self.table or _is_known(self.table):
            check_table_name(self.table)
        if self.once is not None and self.upstream_task_id is not None:
            raise _said_twice()
        epoch = self.newer_than_epoch
        known = epoch is None or _is_known(epoch)
        once = self.once if self.upstream_task_id is None else self.upstream_task_id
        self._asked(self.table, once, _epoch(epoch) if known else 0).check(_is_known)


def _is_known(value: object) -> bool:
    """Whether an argument is what it will be: no template, no other task's output."""
    return isinstance(value, int) or (isinstance(value, str) and "{{" not in value)


def _said_twice() -> InvalidInputError:
    return InvalidInputError(
        "once and upstream_task_id both say which job is meant.", remedy="Give one of them."
    )


def _epoch(value: int | str | None) -> int | None:
    if value is None:
        return None
    try:
        epoch = int(value)
    except ValueError:
        epoch = -1
    if epoch < 0:
        raise InvalidInputError(
            f"newer_than_epoch={value!r} is not an epoch.",
            remedy="Give a whole number of at least 0, such as an earlier report's epoch.",
        )
    return epoch
