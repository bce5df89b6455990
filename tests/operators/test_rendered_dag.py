"""One DAG whose every argument is a template, in both renderings, loaded by two runs.

A value such as ``20130201`` or ``4`` is a text by the one and a number by the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pkgutil import resolve_name
from typing import Any

import pyarrow as pa
import pytest

from support.airflow import HOME, JOB_FILE, Connect, Tables
from support.airflow_runs import xcom
from support.fake_spark import WRITES, FakeSpark
from zero_rename.tables import DeltaTable

pytestmark = [
    *(pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)),
    *(pytest.mark.usefixtures("spark"), pytest.mark.memory_s3),
]

#: As the data source does it. A merge's rows are written as they are: here it is about arguments.
APPLICATION = (
    "import os\n"
    'if os.environ.get("ZERO_RENAME_MODE") == "merge":\n'
    '    os.environ["ZERO_RENAME_MODE"] = "append"\n'
    + WRITES.replace("owner=", "code_version=options.code_version, owner=")
)
OPERATORS = {
    "load": "spark_submit:ZeroRenameSparkSubmitOperator",
    "wait": "sensors.success_manifest:SuccessManifestSensor",
    "recover": "maintenance:RecoverJobsOperator",
    "purge": "maintenance:PurgeStaleUploadsOperator",
    "maintain": "maintenance:MaintainTablesOperator",
    "s3a": "s3a_maintenance:RecoverS3AJobsOperator",
    "plan": "recompute:PlanRecomputeOperator",
    "recompute": "recompute:RecomputeOperator",
    "restore": "restoring:RestoreTableOperator",
    "checkpoint": "checkpoint:CheckpointOperator",
    "find": "conflicts:FindConflictsOperator",
    "settle": "conflicts:ResolveConflictsOperator",
}
#: Arguments of spark-submit that need something of a cluster, and go to it as they are.
OF_CLUSTERS = {
    *("jars", "driver_class_path", "packages", "exclude_packages", "keytab", "principal"),
    "proxy_user",
}
#: Of the Delta table.
ROWS = pa.table({"day": [1], "flight": ["a"]})
CONN = {"zero_rename_conn_id": "{{ 'zero_rename_default' }}"}


def tasks(url: str, undone: str = "zr1-0") -> dict[str, dict[str, Any]]:
    """Arguments by task id, which begins with the operator's name in OPERATORS."""
    table = {"table": f"{{{{ '{url}' }}}}"}
    tables = {"tables": f"{{{{ ['{url}'] }}}}"}
    file = f"{{{{ '{JOB_FILE}' }}}}"
    versions = {"code_versions": {url: "{{ '4' }}"}}
    of_code = {"code_version": "{{ '4' }}"}
    upkeep = {
        **{"apply": "{{ true }}", "patience": "{{ 3600 }}", "catalog": "{{ '' }}"},
        **(tables | CONN),
    }
    purge = {
        **upkeep,
        **{"foreign": "{{ 'yes' }}", "older_than": "{{ 604800 }}", "s3a_patience": "PT1H{{ '' }}"},
        **dict.fromkeys(("staging", "buffer_dir"), f"{{{{ '{HOME}' }}}}"),
    }
    delta = {"table": f"{{{{ '{url}_delta' }}}}"}
    plan = {
        **{"targets": f"{{{{ ['{url}'] }}}}", "lost": "{{ true }}", "narrow": "{{ 'on' }}"},
        **(versions | CONN),
    }
    return {
        "load": {
            **(table | CONN | of_code),
            **{"application": file, "files": file, "py_files": file, "properties_file": file},
            "conf": {"spark.x": "{{ 1 }}"},
            "env_vars": {"TEST_DAYS": "{{ 1 }}"},
            "application_args": ["{{ data_interval_start }}", "{{ ds_nodash }}"],
            "post_submit_commands": ["{{ 'true' }}"],
            "name": "{{ ds_nodash }}",
            "s3a_options": "{{ {} }}",
            "partition": "{{ ['day=1'] }}",
            **{"mode": "{{ 'overwrite' }}", "on_conflict": "{{ 'newest_run' }}"},
            **{"on_superseded": "{{ 'fail' }}", "run_rank": "{{ ds_nodash }}"},
            "wait_for_other_runs": "PT{{ 1 }}M",
            "distribute": "{{ 'none' }}",
            **{"layout": "{{ 'directory' }}", "publish": "{{ 'yes' }}"},
            **{"on_repeat": "{{ 'auto' }}", "committer": "{{ 'zero_rename' }}"},
            **{"catalog": "{{ '' }}", "asset_partitions": "{{ false }}"},
            **{"ship_package": "{{ 'no' }}", "pass_credentials": "{{ 'true' }}"},
        },
        "load_a_merge": {
            **{"application": file, "table": f"{{{{ '{url}_merged' }}}}", "partition": "{{ '*' }}"},
            **{"mode": "{{ 'merge' }}", "merge_on": "{{ ['day'] }}", "latest_by": "{{ 'flight' }}"},
            **{"delete_when": "{{ 'flight is null' }}", "across_partitions": "{{ 1 }}"},
        },
        "load_by_date": {
            **{"application": file, "table": f"{{{{ '{url}_dated' }}}}"},
            "partition_format": "{{ 'day=%-d' }}",
            "env_vars": {"TEST_DAYS": "{{ data_interval_start.day }}"},
        },
        "wait_for_dates": {
            **(table | CONN | versions),
            **{"partition_format": "{{ 'day=1' }}", "newer_than": "{{ ds_nodash }}"},
            **{"from_date": "{{ ds_nodash }}", "to_date": "{{ ds_nodash }}00"},
            **{"min_rows": "{{ 1 }}", "min_files": "{{ '1' }}", "committer": "{{ 'zero_rename' }}"},
            **{"check_files": "{{ 'yes' }}", "apply": "{{ 'no' }}"},
            "require_manifest": "{{ true }}",
            "airflow_conn_id": "{{ 'airflow_api' }}",
        },
        "wait_for_names": {
            **table,
            "partitions": "{{ ['day=1'] }}",
            "newer_than_version": "{{ 0 }}",
        },
        "wait_for_a_directory": {**table, "min_partitions": "{{ 1 }}"},
        "wait_for_a_job": {**table, "job": "{{ ti.xcom_pull('load')['job'] }}"},
        "wait_for_a_task": {
            **{**table, "upstream_task_id": "{{ 'load' }}", "upstream_map_index": "{{ -1 }}"}
        },
        "wait_for_a_key": {
            **{**table, "partition": "{{ 'day=1' }}"},
            "idempotency_key": "{{ macros.zero_rename.idempotency_key_of("
            "dag.dag_id, run_id, 'load') }}",
        },
        "recover": upkeep,
        "purge": purge,
        "maintain": {**purge, "conflicts": "{{ 'report' }}"},
        "s3a": {
            **upkeep,
            **{"force": "{{ false }}", "direction": "{{ 'back' }}", "deep": "{{ 'no' }}"},
            **{"folders": "{{ ['day=1'] }}", "staging": f"{{{{ '{HOME}' }}}}"},
        },
        "plan": plan,
        "recompute": {
            **{**plan, "airflow_conn_id": "{{ 'airflow_api' }}", "poll_interval": "{{ 0 }}"},
            **{"patience": "{{ '1' }}", "timeout": "{{ 5 }}"},
        },
        "restore": {
            **(delta | CONN),
            **{"as_of": "{{ 1 }}", "partitions": "{{ ['day=1'] }}", "apply": "{{ 'off' }}"},
        },
        "restore_what_was": {**delta, "undo": f"{{{{ '{undone}' }}}}"},
        "checkpoint": {**CONN, "tables": f"{{{{ ['{url}_delta'] }}}}", "apply": "{{ true }}"},
        "find": {**tables, **CONN, "since": "{{ 3600 }}", "fail_on": "{{ 'unresolved' }}"},
        "settle": {
            **(table | CONN),
            **{"policy": "{{ {'prefer': ['flights']} }}", "by": "{{ 'restore' }}"},
            **{"partitions": "{{ [] }}", "apply": "{{ true }}"},
            **{"airflow_conn_id": "{{ 'airflow_api' }}", "include_downstream": "{{ false }}"},
            **{"poll_interval": "{{ 30 }}", "timeout": "{{ 3600 }}"},
        },
    }


def owner_of(task_id: str) -> type[Any]:
    module, _, name = OPERATORS[task_id.split("_")[0]].rpartition(":")
    whole = module if module.startswith("sensors") else f"operators.{module}"
    found: type[Any] = resolve_name(f"zero_rename.{whole}:{name}")
    return found


def statements(url: str, native: bool, undone: str) -> Iterator[str]:
    yield "from airflow.sdk.definitions._internal.contextmanager import DagContext"
    yield f"DagContext.get_current().render_template_as_native_obj = {native}"
    for task_id, arguments in tasks(url, undone).items():
        owner = owner_of(task_id)
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        if task_id == "wait_for_dates":
            given += ', on_stale="fail"'
        if task_id.startswith("wait"):
            given += ", poke_interval=1, timeout=60"
        yield f"from {owner.__module__} import {owner.__name__}"
        yield f'{task_id} = {owner.__name__}(task_id="{task_id}", {given})'
    ids = [it for it in tasks(url) if it != "load"]
    yield f"load >> [{', '.join(ids)}]"


def test_every_templated_argument_is_a_template() -> None:
    named: dict[type[Any], set[str]] = {}
    for task_id, arguments in tasks("s3://bucket/flights").items():
        named.setdefault(owner_of(task_id), set()).update(arguments)
    assert len(named) == len(OPERATORS)
    for owner, names in named.items():
        assert {*owner.template_fields} - names == OF_CLUSTERS & {*owner.template_fields}


@pytest.mark.parametrize("native", [False, True])
def test_two_runs_load_whatever_templates_are_rendered_to(
    tables: Tables, spark: FakeSpark, dag_of: Callable[..., Any], connect: Connect, native: bool
) -> None:
    connect("zero_rename_default", extra={"table_root": tables.url("").rstrip("/")})
    # Which is not asked for anything: nothing is stale.
    connect("airflow_api", "http", host="127.0.0.1", port=1, password="token")
    spark.runs(APPLICATION)
    delta = DeltaTable(f"{tables.url()}_delta", tables.bucket.client)
    for _ in range(2):
        with delta.job(ROWS.schema, partition_by=["day"]) as job:
            job.write(ROWS)
    body = "\n".join(statements(tables.url(), native, str(job.job)))
    dag = dag_of(f"rendered_{native}", body)
    for day in (1, 2):
        run = dag.test(logical_date=datetime(2013, 2, day, tzinfo=UTC))
        states = {it.task_id: str(it.state) for it in run.get_task_instances()}
        assert states == dict.fromkeys(states, "success")
        report = xcom(run, "load")
        waits = [it for it in states if it.startswith("wait")]
        assert {it: xcom(run, it)["job"] for it in waits} == dict.fromkeys(waits, report["job"])
        assert xcom(run, "wait_for_names")["partitions"][0]["version"] == day
        assert report["repeated"] is False
    call = next(it for it in spark.calls() if f"_{native}" in it["env"]["ZERO_RENAME_DAG"])
    assert call["env"]["ZERO_RENAME_CODE_VERSION"] == "4"
    assert call["argv"][-2:] == ["2013-02-01 00:00:00+00:00", "20130201"]
    assert "spark.x=1" in call["argv"]
    merges = [it["env"] for it in spark.calls() if it["env"]["ZERO_RENAME_TASK"] == "load_a_merge"]
    assert [it["ZERO_RENAME_MERGE_ON"] for it in merges] == ['["day"]'] * 2
    rows = {name: tables.table(name).scan().count() for name in ("flights", "flights_dated")}
    assert rows == {"flights": 1, "flights_dated": 2}
