"""Loads by the operators of services: a task of one, and the context of its try."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

from support.airflow import run_task, task_context
from support.aws_services import SERVICES as OF_AWS
from support.aws_services import Service


def operator(service: Service, **arguments: Any) -> Any:
    given: dict[str, Any] = {
        "task_id": "load",
        "table": service.application.tables.url(),
        "partition": "day=1",
        "mode": "overwrite",
        "retries": 2,
        "ship_package": False,
    }
    if type(service).__name__ in OF_AWS:
        given["aws_conn_id"] = "services"
    return service.operator(**given | arguments)


def run(service: Service, try_number: int = 1, **arguments: Any) -> dict[str, Any]:
    task = operator(service, **arguments)
    return run_task(task, context(task, try_number))


def context(task: Any, try_number: int = 1, **members: Any) -> dict[str, Any]:
    made = task_context(task, try_number=try_number, dag=None, **members)
    made["ti"].xcom_push = lambda **_: None
    made["ti"].start_date = datetime.now(UTC)
    return made


def request_with(service: Service, settings: dict[str, str]) -> dict[str, Any]:
    """Arguments of the operator whose request has more settings."""
    task = operator(service)
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    kind = type(service).__name__
    if kind == "EmrSteps":
        steps = copy.deepcopy(task.steps)
        steps[0]["HadoopJarStep"]["Args"][1:1] = words
        return {"steps": steps}
    if kind == "Glue":
        joined = " --conf ".join(f"{name}={value}" for name, value in settings.items())
        return {"script_args": {**task.script_args, "--conf": joined}}
    if kind == "Kubernetes":
        body = copy.deepcopy(task.template_spec)
        body["spec"]["sparkConf"] |= settings
        return {"template_spec": body}
    driver = copy.deepcopy(task.job_driver)
    (spark,) = driver.values()
    spark["sparkSubmitParameters"] = " ".join([spark.get("sparkSubmitParameters", ""), *words])
    return {"job_driver": driver}
