"""Sensor that waits until one job, or some partitions, are committed and listable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from functools import partial
from inspect import unwrap
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from ..committer.errors import (
    InvalidInputError,
    StoreUnreachableError,
    UnfinishedUpkeepError,
    ZeroRenameError,
)
from ..committer.format.layout import UNPARTITIONED
from ..orchestration.job_query import ERROR, FAILED, READY, SKIPPED, WAITING, JobQuery, QueryResult
from ..orchestration.partitions_query import PartitionsQuery, TableQuery, as_found, spelled
from ..orchestration.runs.arguments import (
    Parser,
    read_any,
    read_flag,
    read_index,
    read_text,
    read_time,
    read_version,
    read_versions,
    read_whole,
)
from ..orchestration.runs.partitions import (
    check_partition,
    check_partition_format,
    said_partitions,
    table_spelling,
    time_zone,
)
from ..orchestration.runs.task_run import idempotency_key_of
from ..orchestration.table_names import check_table_name
from ..orchestration.templates import check_named, is_known
from ..provider.compat import asks_states, states_of_tasks, trigger_timeout
from ..provider.hooks import DEFAULT_CONN_ID, ZeroRenameHook
from ..provider.staleness import check_on_stale, make_ready_again, see_to_stale
from ..provider.task_arguments import TaskArguments
from ..provider.task_context import map_index_of, refuse_cut_key, resolve_partitions, task_run
from ..provider.triggers import SuccessManifestTrigger
from ..s3a.hadoop.settings import NATIVE

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..committer import Table

#: Arguments about partitions, for any job that committed them.
_OF_PARTITIONS = (
    *("partitions", "from_date", "to_date", "newer_than", "committer", "check_files"),
    "min_partitions",
)
#: Name of the argument in which a wait in the triggerer keeps the end of the sensor's timeout, in
#: Unix seconds.
_UNTIL = "until"
#: Arguments that are texts once they are rendered.
_TEXTS = (
    *("table", "job", "upstream_task_id", "idempotency_key", "partition", "partition_format"),
    *("committer", "airflow_conn_id", "zero_rename_conn_id"),
)


class _UpstreamSkipped(AirflowSkipException):
    """The task that a sensor waits for was skipped, and so is the sensor."""


class SuccessManifestSensor(TaskArguments, BaseSensorOperator):
    """Wait for a commit, never for a file to exist: yesterday's ``_SUCCESS`` exists, too.

    For *one job*, give one of ``job``, ``upstream_task_id``, ``idempotency_key``, or ``partition``
    with ``newer_than_version``. If the job was aborted or has too few rows, the task fails at once.
    If the task with the job was skipped, the sensor is skipped, too. Returns (XCom) the job's
    report, as the load operators do; with ``partition``, for that partition only. A partition that
    was emptied is ready, with ``rows`` 0.

    For *partitions* that any job may have committed, name them by ``partitions``, by ``from_date``,
    ``to_date`` and ``partition_format``, or a single one by ``partition``. Each partition must meet
    all conditions. With ``min_partitions`` the partitions are those below a directory. With
    ``newer_than`` and no named partition it is the whole output. Returns ``rows``, ``files``,
    ``bytes`` of all, and ``partitions``, each with its ``version``, ``job`` and ``decided_at``.

    A commit is ready when it is also closed: readers that list then see every file of it, and none
    that it replaced.

    :param table: ``s3://bucket/prefix``, or a name below the connection's table root.
        (templated)
    :param job: the job's id, such as ``"{{ ti.xcom_pull('load')['job'] }}"``. (templated)
    :param upstream_task_id: wait for the job of this task in the same DAG run. (templated)
    :param upstream_map_index: the map index of that task, if it is mapped. Left out, it is the
        sensor's own if both are in one mapped task group. (templated)
    :param idempotency_key: a run's key, for the task of another DAG:
        ``"{{ macros.zero_rename.idempotency_key_of('flights', run_id, 'load') }}"``. (templated)
    :param partition: wait for this partition; a job must have changed it. (templated)
    :param partitions: several partitions: a list, or a text such as ``day=1;day=2``. (templated)
    :param partition_format: ``strftime`` codes that make partitions from dates: from those between
        ``from_date`` and ``to_date``, else from the run's date as in the load operators.
        (templated)
    :param partition_timezone: the time zone in which dates are written.
    :param from_date: the first date: ISO 8601, ``20251231``, ``2025123105``, a date or a datetime.
        (templated)
    :param to_date: the last date, included. (templated)
    :param newer_than_version: a job has moved the partition beyond this version. 0 is for any
        commit; in a Delta table that is -1, since its first entry is version 0. (templated)
    :param newer_than: a watermark: the last commit is after this time, in the forms of
        ``from_date`` or in Unix seconds. (templated)
    :param min_rows: the least number of rows. A job with fewer rows fails the task; for a partition
        that holds fewer rows the sensor waits. (templated)
    :param min_files: the same for files. (templated)
    :param min_partitions: the least number of partitions that hold files and meet all conditions,
        among those below ``partition``, a path above them, or in the whole table. (templated)
    :param require_manifest: a ``_SUCCESS`` counts only if it names its job, as that of the S3A
        committers does. ``False``: for partitions or an output, the ``_SUCCESS`` of any job counts,
        also one of 0 bytes, as Spark's plain commit writes it. (templated)
    :param committer: the committer of the partitions: ``zero_rename``, which their heads show, or
        ``magic``, ``directory``, ``partitioned``, which their runs' reports and ``_SUCCESS`` show.
        (templated)
    :param check_files: list the partitions, and wait until there are all files that their heads or
        ``_SUCCESS`` name, and as many files as the last job left. (templated)
    :param apply: finish a committed job whose owner died, rather than wait for maintenance; this
        needs the right to write. (templated)
    :param on_foreign_marker: for one job, if nothing is committed and there is a ``_SUCCESS`` of
        another committer: ``wait`` (and log it) or ``fail``.
    :param on_stale: what to do if the partitions are ready, but one of their inputs, or an input of
        an input, has other rows by now: ``fail``; or ``recompute``, as :class:`.RecomputeOperator`
        does, and go on when the partitions match their inputs. ``ignore`` does not check. A
        partition whose inputs are not known is not stale. A table that Hadoop's committers load is
        refused: they record no inputs.
    :param code_versions: by table, the present version of its program's code. Rows that another
        version made, or an unknown one, are stale. (templated)
    :param airflow_conn_id: with ``on_stale="recompute"``, the connection of type ``http`` to
        Airflow's API server. (templated)
    :param deferrable: wait in the triggerer, without a worker slot.
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = (
        *("table", "job", "upstream_task_id", "upstream_map_index", "idempotency_key"),
        *("partition", "partitions", "partition_format", "from_date", "to_date"),
        *("newer_than_version", "newer_than", "min_rows", "min_files", "min_partitions"),
        *(
            "committer",
            "require_manifest",
            "check_files",
            "apply",
            "code_versions",
            "airflow_conn_id",
            "zero_rename_conn_id",
        ),
    )
    parsers: ClassVar[Mapping[str, Parser]] = {
        **dict.fromkeys(_TEXTS, read_text),
        "upstream_map_index": read_index,
        # Their own parsers read these later, when names and time zone are known.
        **dict.fromkeys(("partitions", "from_date", "to_date", "newer_than"), read_any),
        "newer_than_version": read_version,
        **dict.fromkeys(("min_rows", "min_files", "min_partitions"), read_whole),
        **dict.fromkeys(("require_manifest", "check_files", "apply"), read_flag),
        "code_versions": read_versions,
    }
    ui_color = "#e6f2ec"

    def __init__(
        self,
        *,
        table: str,
        job: str | None = None,
        upstream_task_id: str | None = None,
        upstream_map_index: int | str | None = None,
        idempotency_key: str | None = None,
        partition: str | None = None,
        partitions: Sequence[str] | str | None = None,
        partition_format: str | None = None,
        partition_timezone: str = "UTC",
        from_date: str | float | date | None = None,
        to_date: str | float | date | None = None,
        newer_than_version: int | str | None = None,
        newer_than: str | float | date | None = None,
        min_rows: int | str | None = None,
        min_files: int | str | None = None,
        min_partitions: int | str | None = None,
        committer: str | None = None,
        require_manifest: bool | str = True,
        check_files: bool | str = False,
        apply: bool | str = False,
        on_foreign_marker: str = "wait",
        on_stale: str = "ignore",
        code_versions: Mapping[str, str] | str | None = None,
        airflow_conn_id: str = "airflow_api",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.job = job
        self.upstream_task_id = upstream_task_id
        self.upstream_map_index = upstream_map_index
        self.idempotency_key = idempotency_key
        self.partition = partition
        self.partitions = partitions
        self.partition_format = partition_format
        self.partition_timezone = partition_timezone
        self.from_date = from_date
        self.to_date = to_date
        self.newer_than_version: Any = newer_than_version
        self.newer_than: Any = newer_than
        self.min_rows: Any = min_rows
        self.min_files: Any = min_files
        self.min_partitions: Any = min_partitions
        self.committer = committer
        self.require_manifest: Any = require_manifest
        self.check_files: Any = check_files
        self.apply: Any = apply
        self.on_foreign_marker = on_foreign_marker
        self.on_stale = on_stale
        self.code_versions = code_versions
        self.airflow_conn_id = airflow_conn_id
        self.deferrable = read_flag("deferrable", deferrable)
        self.zero_rename_conn_id = zero_rename_conn_id
        self._explained = ""
        self._table: Table | None = None
        self._asked: TableQuery | None = None
        self._until = 0.0
        self._resumed: Callable[[Context], Any] | None = None
        self._check_arguments()

    def execute(self, context: Context) -> Any:
        """Poll once; then wait in the triggerer, or here.

        :raises AirflowSensorTimeout: names the job or the partitions.
        """
        self._until = time.time() + self.timeout
        return self._polled(context)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Go on after a wait in the triggerer, with its result or its timeout.

        :raises AirflowSensorTimeout: names the job or the partitions.
        """
        given = dict(next_kwargs or {})
        # A wait that began before an upgrade of this package has no end in its arguments.
        self._until = given.pop(_UNTIL, time.time() + self.timeout)
        self._resumed = partial(self._resume, next_method, given)
        return self._polled(context)

    def defer(self, *, kwargs: dict[str, Any] | None = None, **given: Any) -> NoReturn:
        """Defer with the end of the sensor's timeout, so that a second wait does not extend it."""
        super().defer(kwargs={**(kwargs or {}), _UNTIL: self._until}, **given)

    def poke(self, context: Context) -> PokeReturnValue:
        """Poll once. If it is not ready, a deferrable sensor then waits in the triggerer.

        :raises AirflowFailException: the commit will never come, or the arguments are invalid.
        :raises AirflowSkipException: the task that it waits for was skipped.
        :raises ZeroRenameError: the table could not be read.
        """
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            return PokeReturnValue(True, resumed(context))
        return self._judge(context, self._ask(context))

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any] | None:
        """Act on the trigger's result.

        :raises AirflowFailException: the commit will never come.
        :raises AirflowSkipException: the task that it waits for was skipped.
        :raises ZeroRenameError: the table could not be read.
        """
        return self._judge(context, QueryResult(**event)).xcom_value

    def proceed(
        self, context: Context, event: object = None, *, progress: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Go on with a recompute after a wait in the triggerer; then poll once more."""
        make_ready_again(self, context, progress)
        return self.poke(context).xcom_value

    def _polled(self, context: Context) -> Any:
        """Poll by the base sensor's ``execute``, also after a wait in the triggerer.

        It decides for each error of a poke whether the task fails, is skipped, or goes on:
        ``soft_fail``, ``never_fail`` and ``silent_fail``.
        """
        # Unwrapped, since Airflow warns of an execute() that is not the task's first.
        poll = unwrap(BaseSensorOperator.execute)
        with self._named(context):
            return poll(self, context)

    def _resume(self, next_method: str, next_kwargs: dict[str, Any], context: Context) -> Any:
        timeout = trigger_timeout(next_method, next_kwargs)
        if timeout is not None:
            raise AirflowSensorTimeout(f"Airflow ended the wait in the triggerer: {timeout}.")
        # Not the base sensor's method: with soft_fail it would skip errors with which a poke fails.
        return super(BaseSensorOperator, self).resume_execution(next_method, next_kwargs, context)

    def _ask(self, context: Context) -> QueryResult:
        """Poll the table once.

        :raises AirflowFailException: the arguments are invalid.
        :raises ZeroRenameError: the table could not be read.
        """
        try:
            query = self._query(context)
            if self._table is None:
                self._table = ZeroRenameHook(self.zero_rename_conn_id).get_table(query.table)
            if self._asked is not None and self._asked.is_spelled:
                query = self._asked
            table = as_found(self._table, [query])
            query = self._asked = spelled(query, lambda: table_spelling(table))
            # Ask before the poll: a task that has ended by now has made its commit, if any, so that
            # the poll finds it.
            ask = asks_states(context["ti"])
            keys = [query.idempotency_key] if query.idempotency_key else []
            state = next(iter(states_of_tasks(ask, keys).values()), None)
            return query.after(query.ask(table), state)
        except InvalidInputError as error:
            raise AirflowFailException(str(error)) from error
        except (StoreUnreachableError, UnfinishedUpkeepError) as error:
            return QueryResult(WAITING, str(error))

    @contextmanager
    def _named(self, context: Context) -> Iterator[None]:
        """Add the table, the job or partitions, and the last result to a timeout in the block."""
        try:
            yield
        except _UpstreamSkipped:
            raise
        except (AirflowSensorTimeout, AirflowSkipException) as error:
            kind, cause = type(error), error.__cause__
            if self.never_fail:
                kind = AirflowSkipException
            is_late = cause is None or isinstance(cause, AirflowSensorTimeout)
            seen = self._last_seen(context) if is_late else ""
            try:
                query = self._query(context)
            except InvalidInputError:
                raise error from None
            raise kind(
                f"{cause or error} Waited for {query.subject} of {query.table}. {seen}".rstrip()
            ) from error

    def _last_seen(self, context: Context) -> str:
        """Return the explanation of the last poll; poll now if only the triggerer has polled."""
        if not self._explained:
            try:
                return self._ask(context).explanation
            except (AirflowException, ZeroRenameError) as error:
                return str(error)
        return self._explained

    def _judge(self, context: Context, result: QueryResult) -> PokeReturnValue:
        if result.state == SKIPPED:
            raise _UpstreamSkipped(result.explanation)
        if result.state == FAILED:
            raise AirflowFailException(result.explanation)
        if result.state == ERROR:
            raise ZeroRenameError(result.explanation)
        if result.explanation != self._explained:
            self._explained = result.explanation
            self.log.info("%s: %s", result.state.capitalize(), result.explanation)
        if result.state == READY and result.report and see_to_stale(self, context, result.report):
            return self.poke(context)
        if result.state != READY and self.deferrable:
            self._defer(context)
        return PokeReturnValue(result.state == READY, result.report)

    def _defer(self, context: Context) -> NoReturn:
        """Wait in the triggerer for the rest of the sensor's timeout."""
        rest = self._until - time.time()
        if rest <= 0:
            raise AirflowSensorTimeout(f"The timeout of {self.timeout:g} s is over.")
        self.defer(
            trigger=SuccessManifestTrigger(
                query=(self._asked or self._query(context)).as_dict(),
                zero_rename_conn_id=self.zero_rename_conn_id,
                poke_interval=self.poke_interval,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=rest),
        )

    def _check_arguments(self) -> None:
        """Check the arguments that are no templates, while a DAG file is parsed.

        :raises InvalidInputError: an invalid argument.
        """
        self.note_arguments()
        check_on_stale(self.on_stale, self.reschedule, self.code_versions, self.committer)
        if not self.table or is_known(self.table):
            check_table_name(self.table)
        key = self.idempotency_key if self.upstream_task_id is None else self.upstream_task_id
        self._query_of(self.table, key, self._known_partitions(), is_known).check(is_known)

    def _query(self, context: Context) -> TableQuery:
        """Build the query from the rendered arguments.

        :raises InvalidInputError: they identify no job and no partitions, or are invalid.
        """
        self.read_arguments()
        table = ZeroRenameHook(self.zero_rename_conn_id).table_url(self.table)
        known: dict[str, Any] = dict(context)
        idempotency_key, upstream = self.idempotency_key, self.upstream_task_id
        check_named("idempotency_key", idempotency_key)
        check_named("upstream_task_id", upstream)
        if upstream is not None and idempotency_key is None:
            run = task_run(known)
            given: Any = self.upstream_map_index
            index = map_index_of(upstream, given, known)
            idempotency_key = idempotency_key_of(run.dag_id, run.run_id, upstream, index)
        names = self._partitions()
        if names is not None:
            names = refuse_cut_key(known, tuple(map(check_partition, names)))
        elif self.partition_format is not None:
            names = resolve_partitions(known, None, self.partition_format, self.partition_timezone)
        query = self._query_of(table, idempotency_key, names, lambda value: value is not None)
        query.check()
        return query

    def _query_of(
        self,
        table: str,
        idempotency_key: str | None,
        names: tuple[str, ...] | None,
        known: Callable[[object], bool],
    ) -> TableQuery:
        """Build a query for one job, or for partitions.

        :param table: the URL of the table's root.
        :param idempotency_key: of the run whose job it waits for, or ``None``.
        :param names: the partitions, or ``None``.
        :param known: return whether a value is final, not a template.
        :raises InvalidInputError: the arguments contradict each other.
        """
        if self.idempotency_key is not None and self.upstream_task_id is not None:
            raise InvalidInputError(
                "idempotency_key and upstream_task_id both say which job is meant.",
                remedy="Give one of them.",
            )
        if self.upstream_map_index is not None and self.upstream_task_id is None:
            raise InvalidInputError(
                f"upstream_map_index={self.upstream_map_index!r} is the index of upstream_task_id, "
                "which is not given; nothing was waited for.",
                remedy="Give upstream_task_id as well. For the task of another DAG give its index "
                "within the key: macros.zero_rename.idempotency_key_of(dag_id, run_id, task_id, "
                "map_index).",
            )
        version, rows, files = (
            value if value is None or known(value) else 0
            for value in (self.newer_than_version, self.min_rows, self.min_files)
        )
        given = {name: getattr(self, name) for name in _OF_PARTITIONS}
        asked = [name for name, it in given.items() if it is not None and it is not False]
        if not self.require_manifest:
            asked.append("require_manifest=False")
        counts = rows is not None or files is not None
        of_all: dict[str, Any] = {
            "table": table,
            "newer_than_version": version,
            "min_rows": rows,
            "min_files": files,
            "apply": self.apply,
        }
        if (
            self.job is None
            and idempotency_key is None
            and (asked or (names and counts and version is None))
        ):
            if self.on_foreign_marker != "wait":
                raise InvalidInputError(
                    "on_foreign_marker is for sensors that wait for one job.",
                    remedy="Leave it out; committer='magic' waits for partitions of that "
                    "committer.",
                )
            return PartitionsQuery(
                **self._subject(names, known),
                newer_than=self._watermark(known),
                committer=self.committer or NATIVE,
                require_manifest=bool(self.require_manifest),
                check_files=self.check_files,
                **of_all,
            )
        if asked:
            raise InvalidInputError(
                f"{asked[0]} is about what partitions hold, whoever committed it; job, "
                "idempotency_key and upstream_task_id are about one job.",
                remedy="Give one or the other.",
            )
        return JobQuery(
            job=self.job,
            idempotency_key=idempotency_key,
            partition=names[0] if names else None,
            on_foreign_marker=self.on_foreign_marker,
            **of_all,
        )

    def _watermark(self, known: Callable[[object], bool]) -> float | None:
        """Return the time after which partitions must be committed, in Unix seconds."""
        if self.newer_than is None or not known(self.newer_than):
            return None if self.newer_than is None else 0.0
        zone = time_zone(self.partition_timezone)
        return read_time("newer_than", self.newer_than, zone).timestamp()

    def _subject(
        self, names: tuple[str, ...] | None, known: Callable[[object], bool]
    ) -> dict[str, Any]:
        """Return the partitions of a query, the directory above them, or the whole output.

        :raises InvalidInputError: ``min_partitions`` is given with several partitions.
        """
        if self.min_partitions is None:
            is_whole = names is None and self.newer_than is not None
            return {"partitions": (UNPARTITIONED,) if is_whole else names or ()}
        if names is not None and len(names) > 1:
            raise InvalidInputError(
                "min_partitions counts the partitions below one directory, and these are named: "
                f"{', '.join(names[:3])}.",
                remedy="Name the directory in partition='year=2013', or none for the whole table.",
            )
        least = self.min_partitions if known(self.min_partitions) else 1
        return {"partitions": (), "directory": (names or ("",))[0], "min_partitions": least}

    def _known_partitions(self) -> tuple[str, ...] | None:
        """Return the partitions if no template is left in the arguments, else a template."""
        given = (self.partitions, self.from_date, self.to_date, self.partition_format)
        if self.partition_format is not None and is_known(self.partition_format):
            check_partition_format(self.partition_format, self.partition_timezone)
        if all(it is None or is_known(it) or isinstance(it, list | tuple) for it in given):
            names = self._partitions()
            if names is not None or self.partition_format is None:
                return names
        return ("{{ }}",)

    def _partitions(self) -> tuple[str, ...] | None:
        return said_partitions(
            self.partition,
            self.partitions,
            (self.from_date, self.to_date),
            self.partition_format,
            self.partition_timezone,
        )
