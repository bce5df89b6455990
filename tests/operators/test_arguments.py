"""Every templated argument of every operator and sensor, in both of Airflow's renderings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib import import_module
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException
from botocore.exceptions import BotoCoreError, ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.airflow import JOB_FILE, Tables, task_context
from support.fake_spark import FakeSpark
from support.http_services import SERVICES
from zero_rename.committer.errors import ZeroRenameError
from zero_rename.operators.loading.load import LoadOperator
from zero_rename.operators.loading.service_load import ServiceLoadOperator
from zero_rename.operators.spark_function import SparkFunctionOperator
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.orchestration.runs.arguments import read_any
from zero_rename.orchestration.submit.job_mark import JobMark
from zero_rename.provider import get_provider_info
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.provider.task_arguments import TaskArguments
from zero_rename.sensors.success_manifest import SuccessManifestSensor

pytestmark = pytest.mark.memory_s3

OPTIONAL = ("zero_rename.operators.spark_kubernetes", "zero_rename.operators.databricks")
#: What templates are rendered to: each kind of argument, right and wrong.
SAMPLES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 4, -1, 4.1, 0.5, 20251231, 2025123105, 1_700_000_000),
    *("", "None", "true", "off", "4", "4.10", "1:00:00", "2025-12-31", "20251231", "day=1"),
    *("append", "merge", "magic", "s3://b/t", "glue://db", "['a', 'b']", "{'a': 1}", "a;b", "{{"),
    *([], ["day=1", 7], [None], {}, {"a": 1}, {"a": {"b": [1]}}, b"a"),
    *(datetime(2025, 12, 31, tzinfo=UTC), date(2025, 12, 31), timedelta(hours=1)),
)
VALUES = st.sampled_from(SAMPLES) | st.one_of(
    st.text(max_size=8),
    st.integers(-(10**14), 10**14),
    st.floats(),
    st.lists(st.text(max_size=3) | st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.integers(), max_size=2),
    st.datetimes(),
    st.timedeltas(),
)


def modules() -> list[str]:
    info = get_provider_info()
    groups = (it for kind in ("operators", "sensors") for it in info[kind])
    return [name for group in groups for name in group["python-modules"]]


def classes_in(module: str) -> Iterator[type[Any]]:
    for name, found in vars(import_module(module)).items():
        if inspect.isclass(found) and found.__module__ == module and not name.startswith("_"):
            yield found


def function(*args: Any, **kwargs: Any) -> None:
    """What a task of a function runs."""


#: The same for the arguments of other operators.
FEWER: tuple[Any, ...] = (
    *(None, True, 4, 4.1, "", "None", "off", "4.10", "{'a': 1}", "{{", ["day=1", 7], [None]),
    *({"a": {"b": [1]}}, b"a", datetime(2025, 12, 31, tzinfo=UTC)),
)
#: How a task is made whose other arguments are right, by its class's name.
MADE: dict[str, dict[str, Any]] = {
    "ZeroRenameSparkSubmitOperator": {
        **{"application": str(JOB_FILE), "partition": "*", "pass_credentials": False}
    },
    "SparkFunctionOperator": {"partition": "*", "python_callable": function},
    "CheckpointOperator": {},
    "FindConflictsOperator": {},
    "ResolveConflictsOperator": {"policy": "newest_run"},
    "RecoverJobsOperator": {},
    "PurgeStaleUploadsOperator": {},
    "MaintainTablesOperator": {},
    "RecoverS3AJobsOperator": {},
    "PublishLoadOperator": {"job": "zr1-01J0000000000000000000000A"},
    "AbortLoadOperator": {"job": "zr1-01J0000000000000000000000A"},
    "RestoreTableOperator": {"as_of": "2025-12-31T00:00:00+00:00"},
    "PlanRecomputeOperator": {},
    "RecomputeOperator": {"timeout": 0},
    "SuccessManifestSensor": {"partitions": ["day=1"], "timeout": 0, "poke_interval": 0},
}
#: Arguments that stand in another one's place, or that only some others let stand.
INSTEAD: dict[str, dict[str, Any]] = {
    "partition_format": {"partition": None, "partitions": None, "newer_than_version": 0},
    "job": {"partitions": None},
    "upstream_task_id": {"partitions": None},
    "idempotency_key": {"partitions": None},
    "upstream_map_index": {"partitions": None, "upstream_task_id": "load"},
    "partition": {"partitions": None, "newer_than_version": 0},
    "from_date": {"partitions": None, "to_date": "2026-01-01", "partition_format": "day=%F"},
    "to_date": {"partitions": None, "from_date": "2020-01-01", "partition_format": "day=%F"},
    "merge_on": {"mode": "merge"},
    "delete_when": {"mode": "merge", "merge_on": ["id"]},
    "latest_by": {"mode": "merge", "merge_on": ["id"]},
    "undo": {"as_of": None},
    "older_than": {"foreign": True},
    "code_versions": {"on_stale": "fail"},
    "job_flow_name": {"job_flow_id": None},
    "iam_role_name": {"iam_role_arn": None},
}
_VALUE = "{{ params.value }}"
#: Arguments in which templates stand deeper.
DEEPER: dict[str, Any] = {"op_args": [_VALUE], "op_kwargs": {"a": _VALUE}}
#: What services' clients say themselves.
OF_SERVICES = (BotoCoreError, ClientError)


@cache
def parameters_of(owner: type) -> frozenset[str]:
    return frozenset(
        name for base in owner.__mro__ for name in inspect.signature(base.__init__).parameters
    )


def made_tasks(make: Callable[..., Any], owner: type, url: str, name: str) -> tuple[Any, Any]:
    """Two tasks with one argument from a template, which is rendered to text, and natively."""
    takes = set(parameters_of(owner))
    usual = {"table": url, "tables": [url], "targets": [url]}
    given = {**usual, **MADE.get(owner.__name__, {"partition": "*"}), **INSTEAD.get(name, {})}
    takes |= {"job_flow_id"} & INSTEAD.get(name, {}).keys()
    given = {key: it for key, it in given.items() if key in takes}

    def made(native: bool) -> Any:
        with DAG("flights", schedule=None, render_template_as_native_obj=native):
            return make(**{"task_id": "t", **given, name: DEEPER.get(name, _VALUE)})

    return made(native=False), made(native=True)


def rendered(task: Any, value: object) -> tuple[Any, Any]:
    """A copy of a task as Airflow makes it for each run, its template rendered to a value, and its
    context."""
    task = task.prepare_for_execution()
    context: Any = task_context(task, dag=task.dag, params={"value": value})
    context["ti"].xcom_push = lambda **_: None
    # A specification that is no YAML is refused while it is rendered.
    with suppress(AirflowException):
        task.render_template_fields(context)
    return task, context


def carried_out(task: Any, context: Any) -> Any:
    """Execute a task; of a load, do all that comes before it is submitted. Returns what it was
    asked for, where that is one value."""
    if not isinstance(task, LoadOperator):
        with suppress(AirflowException, ZeroRenameError):
            task.execute(context)
        return task._query(context) if isinstance(task, SuccessManifestSensor) else None
    load = task._table_load(context)
    if isinstance(task, ServiceLoadOperator):
        task._hand_over(JobMark.of(load.table.root.url, "k", None, 1), "handed", None, {})
    elif isinstance(task, ZeroRenameSparkSubmitOperator):
        with task._prepared(load.hook, load.handoff.encode()):
            words = task._get_hook()._build_spark_submit_command(task.application)
        assert all(isinstance(word, str) for word in words)
    return load.handoff


def outcome(task: Any, context: Any, name: str, known: dict[str, Any]) -> Any:
    """What an argument is read as, and what the task is asked for with it; ``None``: refused. No
    error of Python's is raised.

    :param known: what comes of each value that has been read: all that is done follows from it.
    """
    try:
        task.read_arguments()
        value = getattr(task, name)
        if (key := repr(value)) not in known:
            known[key] = carried_out(task, context)
        return value if task.all_parsers().get(name) is not read_any else None, known[key]
    except (AirflowException, ZeroRenameError, *OF_SERVICES):
        return None


def check(tasks: tuple[Any, Any], name: str, value: object, known: dict[str, Any]) -> None:
    """Refused or read, without an error of Python's; the same in both renderings, where the native
    one has kept the text: of ``0x10`` it makes 16, of ``4.10`` 4.1."""
    (text, of_text), (native, of_native) = (rendered(task, value) for task in tasks)
    kept = str(getattr(native, name)) == getattr(text, name)
    by_text = outcome(text, of_text, name, known)
    by_native = outcome(native, of_native, name, known)
    if kept and by_text is not None and by_native is not None:
        assert by_text == by_native, (name, value)


def check_all(make: Callable[..., Any], owner: Any, url: str, values: Any) -> None:
    asked = issubclass(owner, LoadOperator) and owner is not ZeroRenameSparkSubmitOperator
    by_function = issubclass(owner, SparkFunctionOperator)
    base: Any = ZeroRenameSparkSubmitOperator if by_function else LoadOperator
    # What all loads have is asked of one of them; that a run has a spark_submit_task is refused.
    shared = {"spark_submit_task", *(base.template_fields if asked else ())}
    optional = owner.all_parsers("optional_parsers")
    for name in [it for it in owner.template_fields if it not in shared]:
        tasks, known = made_tasks(make, owner, url, name), {}
        for value in FEWER if values is SAMPLES and name in optional else values:
            check(tasks, name, value, known)


@pytest.fixture
def one_client(tables: Tables, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """The hooks of a test share a client: to make one takes longer than all else."""
    tables.load(1)
    client = ZeroRenameHook().get_conn()
    monkeypatch.setattr(ZeroRenameHook, "get_conn", lambda _: client)
    return tables


OWNERS = {
    found.__name__: found
    for module in modules()
    if module not in OPTIONAL
    for found in classes_in(module)
    if not issubclass(found, ServiceLoadOperator)
}


def test_every_operator_and_sensor_is_asked() -> None:
    services = {"EmrServerless", "EmrSteps", "EmrContainers", "Glue", "Kubernetes", "Databricks"}
    assert set(SERVICES) == services
    assert set(OWNERS) == set(MADE)
    assert all(issubclass(owner, TaskArguments) for owner in OWNERS.values())


@pytest.mark.parametrize("owner", OWNERS.values(), ids=OWNERS.keys())
def test_every_sample_is_refused_or_read_alike(owner: Any, one_client: Tables) -> None:
    check_all(owner, owner, one_client.url(), SAMPLES)


@pytest.mark.parametrize("owner", OWNERS.values(), ids=OWNERS.keys())
def test_any_value_is_refused_or_read_alike(owner: Any, one_client: Tables) -> None:
    @settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
    @given(VALUES)
    def asked(value: object) -> None:
        check_all(owner, owner, one_client.url(), [value])

    asked()


@pytest.mark.parametrize("service", SERVICES, indirect=True)
def test_every_sample_of_a_service_is_refused_or_read_alike(
    service: Any, one_client: Tables
) -> None:
    url = one_client.url()
    owner = type(made_by(service, table=url))
    check_all(lambda **given: made_by(service, **given), owner, url, FEWER)
    service.calls.clear()  # Those of wrong arguments need no rights.


def made_by(service: Any, **arguments: Any) -> Any:
    """A service's operator, as its other tests make it."""
    return service.operator(**{"task_id": "t", "partition": "*"} | arguments)
