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

#: The setting with the mark of a job's run, since runs of Glue have no names. It must be a setting
#: of Spark: Glue passes unknown arguments on to the script, whose parser may refuse them.
_MARK = "spark.zero_rename.run"
#: Packages that this package needs, and that Glue has in older versions.
_NEEDED = ("boto3", "pyarrow")
#: The most pages of 200 runs that are searched, the newest first.
_PAGES = 10


class ZeroRenameGlueOperator(AwsLoadOperator, GlueJobOperator):
    """Load a table by a Spark job of AWS Glue.

    It takes every argument of :class:`GlueJobOperator` and of
    :class:`~.loading.service_load.ServiceLoadOperator`. Glue has no environment variables, so the
    application's hand-off is a setting of Spark (``--conf``), which ``save()`` and ``register()``
    read. The package is in ``--extra-py-files``, and its requirements in
    ``--additional-python-modules``. These are added to the values in ``script_args`` or, without
    them, in the job's own default arguments. Returns (XCom) the same as
    :class:`ZeroRenameSparkSubmitOperator`.

    A deferred task polls its run ``waiter_max_attempts`` times. A run that has not ended then goes
    on, and the next attempt waits for it.
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
        # GlueJobOperator's own search for a run would find that of a cleared task, and report it as
        # done.
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
        """Return the job's default arguments; each argument of a run replaces one of them."""
        return self._job().get("DefaultArguments") or {}

    def _job(self) -> Mapping[str, Any]:
        """Return the job's definition: from the service, or that with which the job is made."""
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
            return  # The job does not exist yet: the start makes it.

    def defer(self, *, trigger: Any, method_name: str, **more: Any) -> Any:
        """Defer with a trigger that cancels the run if the task is ended."""
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
    """Return the name of a module in ``--additional-python-modules``.

    It is read from a requirement, or from a file that pip installs, such as
    ``s3://bucket/pyarrow-19.0.0-cp311-….whl``.
    """
    last = said.strip().rpartition("/")[2]
    is_file = last.endswith((".whl", ".tar.gz", ".zip"))
    return re.split(r"-\d" if is_file else r"[^\w.-]", last)[0].lower().replace("_", "-")


def _listed(given: str | None, more: list[str]) -> str:
    return ",".join([*filter(None, [given]), *more])
