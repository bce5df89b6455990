"""Loads by jobs of AWS Glue."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from itertools import islice
from typing import Any, ClassVar

from airflow.providers.amazon.aws.operators.glue import JOB_RUN_TERMINAL_STATES, GlueJobOperator

from ..committer.format.handoff import HANDOFF_SETTING
from ..committer.upkeep.access_policy import Service
from ..orchestration.runs.arguments import Parser, invalid, read_mapping, read_settings, read_text
from ..orchestration.submit.job_mark import JobMark
from ..orchestration.submit.seen_jobs import seen_glue_job
from ..orchestration.submit.service_words import with_glue_settings
from ..provider.cancelling_triggers import CancellingGlueTrigger, cancel_run
from ..s3a.services import RULES, ServiceJob
from .loading.aws_load import AwsLoadOperator

#: The setting that carries the mark of a job's run, which has no name. Glue passes what it does not
#: take itself on to the script, whose parser may refuse it: settings it takes.
_MARK = "spark.zero_rename.run"
#: What the package needs and Glue has in older versions.
_NEEDED = ("boto3", "pyarrow")
#: Pages of 200 runs that are looked through, the newest first.
_PAGES = 10


class ZeroRenameGlueOperator(AwsLoadOperator, GlueJobOperator):
    """Load a table by a Spark job of AWS Glue.

    Takes every argument of :class:`GlueJobOperator` and of
    :class:`~.loading.service_load.ServiceLoadOperator`. Glue has no environment variables: what the
    application is told is a setting of Spark (``--conf``), which ``save()`` and ``register()``
    read; the package is in ``--extra-py-files``, and what it needs in
    ``--additional-python-modules``. What ``script_args``, or else the job's own default arguments,
    have there is kept. Returns (XCom) what :class:`ZeroRenameSparkSubmitOperator` returns.

    A deferred task looks at its run ``waiter_max_attempts`` times. A run that has not ended then
    goes on, and the next try waits for it.
    """

    service = Service.GLUE
    request_fields = ("script_args", "create_job_kwargs", "run_job_kwargs")
    optional_parsers: ClassVar[Mapping[str, Parser]] = {
        **dict.fromkeys(
            ("job_name", "iam_role_arn", "iam_role_name", "s3_bucket", "script_location"), read_text
        ),
        "script_args": read_settings,
        **dict.fromkeys(("create_job_kwargs", "run_job_kwargs"), read_mapping),
    }

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # GlueJobOperator's own way to find a run again would take a cleared task's for done.
        self.durable = False

    def _check_arguments(self, parsing: bool = False) -> None:
        super()._check_arguments(parsing)
        script = self.script_location
        if not parsing and script and not script.startswith("s3://") and not self.s3_bucket:
            raise invalid(
                "script_location",
                script,
                "a file of the worker, and s3_bucket names no bucket for it",
                "Give s3_bucket, or the script as s3://bucket/key.",
            )

    def _hand_over(
        self, mark: JobMark, handed: str, package: str | None, settings: Mapping[str, str]
    ) -> None:
        given = {**self._defaults(), **self.script_args}
        said = {HANDOFF_SETTING: handed, **settings, _MARK: str(mark)}
        added = {"--conf": with_glue_settings(given.get("--conf"), said)}
        if settings:
            added |= RULES[self.service].arguments
        if package:
            added["--extra-py-files"] = _listed(given.get("--extra-py-files"), [package])
            modules = given.get("--additional-python-modules", "")
            named = {_module(it) for it in modules.split(",")}
            needed = [f"{name}=={version(name)}" for name in _NEEDED if name not in named]
            added["--additional-python-modules"] = _listed(modules, needed)
        self.script_args = {**self.script_args, **added}

    def _defaults(self) -> Mapping[str, str]:
        """The job's own arguments, which those of a run replace one by one."""
        return self._job().get("DefaultArguments") or {}

    def _job(self) -> Mapping[str, Any]:
        """The job's own definition: what the service has, or what it is made of."""
        created = self.create_job_kwargs or {}
        if self.update_config:
            return created
        client = self.hook.conn
        try:
            return client.get_job(JobName=self.job_name)["Job"]
        except client.exceptions.EntityNotFoundException:
            return created

    def _seen_job(self) -> ServiceJob:
        return seen_glue_job(self._job(), self.script_args)

    def _list_unfinished(self) -> Iterator[tuple[str, str]]:
        client = self.hook.conn
        pages = client.get_paginator("get_job_runs").paginate(
            JobName=self.job_name, PaginationConfig={"PageSize": 200}
        )
        try:
            for page in islice(pages, _PAGES):
                for run in page["JobRuns"]:
                    if run["JobRunState"] not in JOB_RUN_TERMINAL_STATES:
                        conf = run.get("Arguments", {}).get("--conf", "")
                        yield run["Id"], conf.rpartition(f"{_MARK}=")[2]
        except client.exceptions.EntityNotFoundException:
            return  # The job is not there yet: the start makes it.

    def defer(self, *, trigger: Any, method_name: str, **more: Any) -> Any:
        """As any load's, by a trigger that cancels the run with the task."""
        if method_name == self.completed_by:
            trigger = self._trigger(trigger.run_id)
        super().defer(trigger=trigger, method_name=method_name, **more)

    def _trigger(self, job_id: str) -> CancellingGlueTrigger:
        return CancellingGlueTrigger(
            job_name=self.job_name, run_id=job_id, verbose=self.verbose, **self._waiting()
        )

    def _description(self, error: BaseException) -> Any:
        if self._job_run_id is None:
            return super()._description(error)
        return self.hook.conn.get_job_run(JobName=self.job_name, RunId=self._job_run_id)

    def _cancel(self, job_id: str) -> None:
        cancel_run(self.hook.conn, self.job_name, job_id)


def _module(said: str) -> str:
    """Return the name of a module of ``--additional-python-modules``: of a requirement, or of a
    file that pip installs, as ``s3://bucket/pyarrow-19.0.0-cp311-….whl`` is."""
    last = said.strip().rpartition("/")[2]
    is_file = last.endswith((".whl", ".tar.gz", ".zip"))
    return re.split(r"-\d" if is_file else r"[^\w.-]", last)[0].lower().replace("_", "-")


def _listed(given: str | None, more: list[str]) -> str:
    return ",".join([*filter(None, [given]), *more])
