"""The example of EMR Serverless, on moto."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from support.airflow import Tables, task_context
from support.aws_services import ROLE, Service
from zero_rename.committer.format.handoff import Handoff
from zero_rename.example_dags import flights_emr_serverless


@pytest.mark.parametrize("service", ["EmrServerless"], indirect=True)
def test_a_day_is_loaded(service: Service, tables: Tables) -> None:
    load: Any = flights_emr_serverless.dag.get_task("load").prepare_for_execution()
    load.aws_conn_id = "services"
    variables = SimpleNamespace(emr_application_id=service.id, emr_job_role=ROLE)
    params = {"table": tables.url(), "code": "s3://lake/job.py", "csv": "s3://lake/f.csv"}
    context: Any = task_context(load, params=params, var=SimpleNamespace(value=variables))
    load.render_template_fields(context)
    with pytest.raises(TaskDeferred) as deferred:
        load.execute(context)
    kwargs = json.loads(json.dumps(deferred.value.kwargs)) | {"event": {"status": "success"}}
    report = load.resume_execution(deferred.value.method_name, kwargs, context)
    assert (report["partition"], report["rows"]) == ("year=2013/month=2/day=1", 1)
    driver = service.requests[0]["job_driver"]["sparkSubmit"]
    assert driver["entryPointArguments"] == ["--csv", "s3://lake/f.csv", "--day", "2013-02-01"]
    assert Handoff.decode(service.variables(service.requests[0])).idempotency_key == (
        "flights/scheduled__2013-02-02/load"
    )
