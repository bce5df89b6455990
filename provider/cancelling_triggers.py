"""Triggers of the amazon provider that cancel the job when a user ends the deferred task.

Airflow 3.3 then calls a trigger's ``on_kill``. The provider's own triggers for EMR steps and Glue
have none. Its trigger for EMR Serverless asks for its connection in the triggerer's event loop.
With Python 3.11 Airflow does not answer there (``asyncio.wait_for`` makes a task without
greenback's portal), and the hook goes on without the connection.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.amazon.aws.triggers.emr import (
    EmrAddStepsTrigger,
    EmrServerlessStartJobTrigger,
)
from airflow.providers.amazon.aws.triggers.glue import GlueJobCompleteTrigger
from asgiref.sync import sync_to_async


def cancel_serverless(client: Any, application: str, job: str) -> None:
    """Ask EMR Serverless to end a job."""
    client.cancel_job_run(applicationId=application, jobRunId=job)


def cancel_step(client: Any, cluster: str, step: str) -> None:
    """Ask EMR to end a step and its application."""
    client.cancel_steps(
        ClusterId=cluster, StepIds=[step], StepCancellationOption="TERMINATE_PROCESS"
    )


def cancel_run(client: Any, job: str, run: str) -> None:
    """Ask Glue to end a job's run."""
    client.batch_stop_job_run(JobName=job, JobRunIds=[run])


class CancellingServerlessTrigger(EmrServerlessStartJobTrigger):
    """Trigger that waits for a job of EMR Serverless, and cancels it if the task is ended."""

    async def on_kill(self) -> None:
        if self.job_id and self.cancel_on_kill:
            self.log.info("Cancelling the job %s of %s", self.job_id, self.application_id)
            await sync_to_async(self._cancel)(self.job_id)

    def _cancel(self, job: str) -> None:
        cancel_serverless(self.hook().conn, self.application_id, job)


class CancellingStepTrigger(EmrAddStepsTrigger):
    """Trigger that waits for a step of EMR, and cancels it if the task is ended."""

    async def on_kill(self) -> None:
        cluster, (step,) = self.waiter_args["ClusterId"], self.waiter_args["StepIds"]
        self.log.info("Cancelling the step %s of the cluster %s", step, cluster)
        await sync_to_async(self._cancel)(cluster, step)

    def _cancel(self, cluster: str, step: str) -> None:
        cancel_step(self.hook().conn, cluster, step)


class CancellingGlueTrigger(GlueJobCompleteTrigger):
    """Trigger that waits for a run of a Glue job, and cancels it if the task is ended."""

    async def on_kill(self) -> None:
        self.log.info("Cancelling the run %s of the Glue job %s", self.run_id, self.job_name)
        await sync_to_async(self._cancel)()

    def _cancel(self) -> None:
        cancel_run(self.hook().conn, self.job_name, self.run_id)
