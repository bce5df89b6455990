"""Operator for tables of Hadoop's S3A committers: finish or undo jobs that dead drivers left."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from ..committer.errors import InvalidInputError
from ..orchestration.runs.arguments import Parser, read_flag, read_names, read_text
from ..orchestration.runs.reports import text_table
from ..provider.hooks import DEFAULT_CONN_ID, ZeroRenameHook
from ..s3a.recovery.liveness import Action, RecoveryOptions
from ..s3a.recovery.recover import UNSETTLED, RecoveredJob, recover_jobs
from .maintenance import Step, _TableMaintenance

if TYPE_CHECKING:
    from ..committer import Table

_DIRECTIONS = {"forward": Action.FORWARD, "back": Action.BACK}


def _read_folders(name: str, given: object) -> tuple[str, ...]:
    return read_names(name, given, None, "folders", "paths such as day=1")


class RecoverS3AJobsOperator(_TableMaintenance):
    """Finish or undo jobs that dead drivers left on tables of Hadoop's S3A committers.

    By default it only reports. With ``apply``, a dead job is rolled forward if all of its pending
    sets can be read, every file is written or outstanding, and at least one is written. Any other
    dead job is rolled back. Living jobs are not touched, nor, without ``force``, are jobs that may
    live.

    The record that :class:`~.spark_submit.ZeroRenameSparkSubmitOperator` keeps beside the table
    names the run of a job, and the state of its task instance shows whether that run is over.

    Returns (XCom) ``tables``, each with ``jobs`` (every field of
    :class:`~zero_rename.s3a.recovery.recover.RecoveredJob`), ``outcomes`` (the number of each) and
    ``failed``. The task fails if a job could not be settled, if its metadata were refused, or if a
    person who knows the load must choose.

    :param tables: one table or several, by URL or by name below the connection's table root.
        (templated)
    :param apply: act; ``False`` only reports. (templated)
    :param force: also act on jobs that may live. (templated)
    :param patience: seconds (or a timedelta) without a sign of life after which a job that no run's
        record names counts as dead. It must be longer than the longest task, since a task that
        writes a file gives no sign. ``None``: the state of such a job stays unknown. (templated)
    :param direction: ``back`` rolls back even a job that could be rolled forward. ``forward`` rolls
        forward a job although another job has committed since, or ETags cannot be compared: only a
        person who knows the load can choose that. (templated)
    :param folders: partitions that are the destinations of jobs, as paths below the table: a job
        without uploads can be found only there. (templated)
    :param deep: list the whole tables instead of ``folders``; a request per thousand files.
        (templated)
    :param staging: the folder in which the directory and partitioned committers keep their pending
        sets (``fs.s3a.committer.staging.tmp.path``), as a path on the worker or an ``hdfs://`` URL.
        (templated)
    :param catalog: as in :class:`~zero_rename.operators.maintenance.RecoverJobsOperator`, for
        tables that also have jobs of this package: other tables have no record of their columns.
        (templated)
    :param zero_rename_conn_id: connection of type ``zero_rename``. (templated)
    """

    template_fields: Sequence[str] = (
        *_TableMaintenance.template_fields,
        *("force", "direction", "folders", "deep", "staging"),
    )
    parsers: ClassVar[Mapping[str, Parser]] = {
        **dict.fromkeys(("force", "deep"), read_flag),
        **dict.fromkeys(("direction", "staging"), read_text),
        "folders": _read_folders,
    }

    def __init__(
        self,
        *,
        tables: str | Sequence[str],
        apply: bool | str = False,
        force: bool | str = False,
        patience: float | timedelta | str | None = None,
        direction: str | None = None,
        folders: str | Sequence[str] = (),
        deep: bool | str = False,
        staging: str | None = None,
        zero_rename_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            tables=tables,
            apply=apply,
            patience=patience,
            zero_rename_conn_id=zero_rename_conn_id,
            **kwargs,
        )
        self.force: Any = force
        self.direction = direction
        self.folders: Any = folders
        self.deep: Any = deep
        self.staging = staging
        self.note_arguments()

    def _options(self) -> RecoveryOptions:
        """Build the options of the recovery from the arguments.

        :raises InvalidInputError: an invalid argument.
        """
        if self.direction is not None and self.direction not in _DIRECTIONS:
            raise InvalidInputError(
                f"direction={self.direction!r} is unknown.", remedy="Choose forward or back."
            )
        return RecoveryOptions(
            apply=self.apply,
            force=self.force,
            patience=self.patience,
            direction=_DIRECTIONS[self.direction] if self.direction else None,
            folders=tuple(self.folders),
            deep=self.deep,
            staging=self.staging,
        )

    def _check(self, hook: ZeroRenameHook) -> None:
        self._options()

    def _steps(self, table: Table, hook: ZeroRenameHook) -> Sequence[Step]:
        return [(table.root.url, partial(self._recovered, table))]

    def _recovered(self, table: Table) -> dict[str, Any]:
        from ..tables.files_in_log import files_in_log  # Lazy: it loads Parquet readers.

        options = dataclasses.replace(self._options(), ask=self._ask, in_log=files_in_log)
        found = table.tend(recover_jobs(table.root, options))
        self._log_jobs(table, found)
        outcomes = [str(job.outcome) for job in found]
        return {
            "table": table.root.url,
            "jobs": [_plain(job) for job in found],
            "outcomes": {name: outcomes.count(name) for name in sorted(set(outcomes))},
            "failed": sum(1 for job in found if job.outcome in UNSETTLED),
        }

    def _log_jobs(self, table: Table, found: Sequence[RecoveredJob]) -> None:
        header = ("job", "left", "held for", "why", "outcome", "reason")
        rows = [(j.job, j.left, j.state, j.state_reason, j.outcome, j.reason) for j in found]
        listed = text_table(header, rows) if rows else "nothing is left of S3A jobs"
        self.log.info("%s\n%s", table.root.url, listed)


def _plain(job: RecoveredJob) -> dict[str, Any]:
    """Return a job as values that XCom can hold."""
    members = dataclasses.asdict(job) | {"kept": list(job.kept)}
    return {n: str(v) if isinstance(v, StrEnum) else v for n, v in members.items()}
