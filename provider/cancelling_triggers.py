"""Triggers of the amazon provider, with jobs that are cancelled when a user ends the deferred task.

Airflow 3.3 calls a trigger's ``on_kill`` then; the provider's own for these two services have none.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.amazon.aws.triggers.emr import EmrAddStepsTrigger
from airflow.providers.amazon.aws.triggers.glue import GlueJobCompleteTrigger
from asgiref.sync import sync_to_async


def cancel_step(client: Any, cluster: str, step: str) -> None:
    """Ask EMR to end a step and its application."""
    client.cancel_steps(
        ClusterId=cluster, StepIds=[step], StepCancellationOption="TERMINATE_PROCESS"
    )


def cancel_run(client: Any, job: str, run: str) -> None:
    """Ask Glue to end a job's run."""
    client.batch_stop_job_run(JobName=job, JobRunIds=[run])


class CancellingStepTrigger(EmrAddStepsTrigger):
    """Waits for a step, and cancels it with the task."""

    async def on_kill(self) -> None:
        cluster, (step,) = self.waiter_args["ClusterId"], self.waiter_args["StepIds"]
        self.log.info("Cancelling the step %s of the cluster %s", step, cluster)
        await sync_to_async(cancel_step)(self.hook().conn, cluster, step)


class CancellingGlueTrigger(GlueJobCompleteTrigger):
    """Waits for a job's run, and cancels it with the task."""

    async def on_kill(self) -> None:
        self.log.info("Cancelling the run %s of the Glue job %s", self.run_id, self.job_name)
        await sync_to_async(cancel_run)(self.hook().conn, self.job_name, self.run_id)
