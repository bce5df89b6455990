"""Faults that a sensor sees: each ends its task the same in a worker and in the triggerer.

A fault ends a task as Airflow ends that of a sensor whose poke raises: what is final skips it under
``soft_fail``, and what may be right at the next try fails it, to be tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)

from support.airflow import Tables, task_context
from zero_rename.committer import StoreRefusedError
from zero_rename.orchestration.job_query import JobQuery
from zero_rename.provider import staleness, table_watch
from zero_rename.provider.recomputed import Recomputed
from zero_rename.sensors import success_manifest
from zero_rename.sensors.success_manifest import SuccessManifestSensor

pytestmark = pytest.mark.memory_s3

KEY = "flights/scheduled__2013-02-02/load"
#: How a wait ends: final failures are not tried again.
SKIPPED, FINAL, TRIED_AGAIN = "skipped", "failed", "failed, to be tried again"
POLICIES = ("", "soft_fail", "never_fail")
#: A fault by its name: the sensor's arguments, what makes it, what the sentence says, and how the
#: task ends by policy.
Make = Callable[[Tables, pytest.MonkeyPatch], None]


def few_rows(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.load(1, idempotency_key=KEY)


def damaged_head(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.bucket.put(tables.table().root.run_key(KEY), b"{")


def unspellable(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.load(1)


def unforeseen(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(JobQuery, "ask", broken)
    monkeypatch.setattr(JobQuery, "watched", broken)


def refused(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: Any, **__: Any) -> Any:
        raise StoreRefusedError("AccessDenied")

    monkeypatch.setattr(JobQuery, "ask", deny)
    monkeypatch.setattr(JobQuery, "not_there", deny)


def upstream(state: str) -> Make:
    states = {"scheduled__2013-02-02": {"load": state}}

    def make(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (success_manifest, table_watch):
            monkeypatch.setattr(module, "asks_states", lambda _: lambda **_: states)

    return make


FAULTS: dict[str, tuple[dict[str, Any], Make, str, tuple[str, str, str]]] = {
    "few rows": ({"min_rows": 10}, few_rows, "min_rows", (FINAL, SKIPPED, SKIPPED)),
    "failed upstream": ({}, upstream("failed"), "Clear it to load", (FINAL, SKIPPED, SKIPPED)),
    "skipped upstream": ({}, upstream("skipped"), "newer runs", (SKIPPED, SKIPPED, SKIPPED)),
    "a partition that cannot be": (
        {"partition": "day=first"},
        unspellable,
        "'first'",
        (FINAL, SKIPPED, SKIPPED),
    ),
    "a damaged record": ({}, damaged_head, "cannot be read", (TRIED_AGAIN, TRIED_AGAIN, SKIPPED)),
    "a refusal": ({}, refused, "AccessDenied", (TRIED_AGAIN, TRIED_AGAIN, SKIPPED)),
    "an unforeseen error": ({}, unforeseen, "no such thing", (TRIED_AGAIN, TRIED_AGAIN, SKIPPED)),
    "nothing comes": ({}, lambda *_: None, "Nothing committed", (FINAL, SKIPPED, SKIPPED)),
}
#: Where the sensor looks, and whether the fault is there at its first look.
PLACES = {"poked": (False, True), "deferrable": (True, True), "in the triggerer": (True, False)}
CASES = [
    pytest.param(fault, place, policy, id=f"{fault}-{place}-{policy or 'as it is'}")
    for fault in FAULTS
    for place in PLACES
    for policy in POLICIES
]


def sensor(tables: Tables, **arguments: Any) -> SuccessManifestSensor:
    given: dict[str, Any] = {"upstream_task_id": "load", "poke_interval": 0.01, "timeout": 1}
    return SuccessManifestSensor(task_id="wait", table=tables.url(), **given | arguments)


def begun(make: Callable[[], SuccessManifestSensor]) -> Any:
    """The XCom of a sensor, or how it defers."""
    task = make()
    context: Any = task_context(task)
    task.render_template_fields(context)
    try:
        return task.execute(context)
    except TaskDeferred as deferred:
        return deferred


def waited(make: Callable[[], SuccessManifestSensor], result: Any) -> Any:
    """The XCom of a sensor after its waits in the triggerer, each as Airflow goes through them:
    the trigger is made of what is stored of it, and each resumption is another process."""
    while isinstance(result, TaskDeferred):
        _, stored = result.trigger.serialize()
        method, kwargs = result.method_name, dict(result.kwargs or {})
        try:
            kwargs["event"] = asyncio.run(first_event(type(result.trigger)(**stored), result))
        except TimeoutError:
            method, kwargs = "__fail__", {"error": "Trigger timeout"}
        task = make()
        context: Any = task_context(task)
        task.render_template_fields(context)
        try:
            result = task.resume_execution(method, kwargs, context)
        except TaskDeferred as deferred:
            result = deferred
    return result


async def first_event(trigger: Any, deferred: Any) -> Any:
    seconds = deferred.timeout.total_seconds() if deferred.timeout else None
    return (await asyncio.wait_for(anext(trigger.run()), seconds)).payload


def end_of(run: Callable[[], Any]) -> tuple[str, str]:
    """How a task ends, and what its error says."""
    try:
        run()
    except AirflowSkipException as error:
        return SKIPPED, str(error)
    except (AirflowFailException, AirflowSensorTimeout) as error:
        return FINAL, str(error)
    except Exception as error:
        return TRIED_AGAIN, f"{type(error).__name__} {error}"
    return "success", ""


@pytest.mark.parametrize(("fault", "place", "policy"), CASES)
def test_a_fault_ends_the_task_the_same_wherever_it_is_seen(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, fault: str, place: str, policy: str
) -> None:
    arguments, make_fault, said, ends = FAULTS[fault]
    deferrable, at_once = PLACES[place]
    policies = {policy: True} if policy else {}
    timeout, poll = 60, 0.01
    if fault == "nothing comes":
        timeout, poll = (1 if at_once else 5), 0.2  # Its first look is to end before that.

    def make() -> SuccessManifestSensor:
        given = {**arguments, **policies, "timeout": timeout, "deferrable": deferrable}
        return sensor(tables, **given, poke_interval=poll)

    if at_once:
        make_fault(tables, monkeypatch)
        found = end_of(lambda: waited(make, begun(make)))
    else:
        deferred = begun(make)
        assert isinstance(deferred, TaskDeferred)
        make_fault(tables, monkeypatch)
        found = end_of(lambda: waited(make, deferred))
    assert found[0] == ends[POLICIES.index(policy)], found
    assert said in found[1]


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_fault_that_passes_is_waited_out_under_silent_fail(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    job, ask, faults = tables.load(1, idempotency_key=KEY), JobQuery.ask, [1]

    def once(*given: Any) -> Any:
        if faults:
            faults.pop()
            raise StoreRefusedError("AccessDenied")
        return ask(*given)

    monkeypatch.setattr(JobQuery, "ask", once)

    def make() -> SuccessManifestSensor:
        return sensor(tables, silent_fail=True, deferrable=deferrable, timeout=60)

    assert waited(make, begun(make))["job"] == job.job
    assert faults == []


def test_a_claim_of_the_run_is_waited_for_though_its_task_has_failed(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its application outlives it, and is about to commit."""
    tables.claimed(1, idempotency_key=KEY)
    upstream("failed")(tables, monkeypatch)
    how, said = end_of(lambda: begun(lambda: sensor(tables)))
    assert (how, "Sensor has timed out" in said) == (FINAL, True)


@pytest.mark.parametrize("deferrable", [False, True])
def test_what_was_made_again_and_is_not_ready_is_waited_for(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    """The deferred sensor was successful, without a report. The recompute's own parts are those of
    its tests: here it has run a job again, which is committed and not closed."""
    layers = [((),), ()]

    def make_again(*_: Any, **__: Any) -> Recomputed:
        made = Recomputed((), 0.0, layers=layers.pop(0))
        if made.layers:
            tables.decided(1)
        return made

    monkeypatch.setattr(staleness, "make_again", make_again)
    tables.load(1)

    def make() -> SuccessManifestSensor:
        return sensor(
            tables,
            **{"upstream_task_id": None, "partitions": ["day=1"], "timeout": 60},
            **{"on_stale": "recompute", "deferrable": deferrable, "min_rows": 1},
        )

    if not deferrable:
        # Other threads may sleep, too, so that each pause recovers.
        monkeypatch.setattr(
            "airflow.sdk.bases.sensor.time.sleep", lambda _: tables.table().recover()
        )
        report = begun(make)
    else:
        task = make()
        context: Any = task_context(task)
        task.render_template_fields(context)
        ready: Any = {"state": "ready", "explanation": "x", "report": report_of(tables)}
        with pytest.raises(TaskDeferred) as caught:
            task.resume_execution("execute_complete", {"event": ready}, context)
        tables.table().recover()
        report = waited(make, caught.value)
    assert (report["rows"], layers) == (4, [])


def report_of(tables: Tables) -> dict[str, Any]:
    return {"table": tables.url(), "partitions": [{"partition": "day=1", "files": 1}]}


def test_a_second_wait_has_the_rest_of_the_sensors_time(tables: Tables) -> None:
    first = begun(lambda: sensor(tables, deferrable=True, timeout=90))
    assert timedelta(seconds=60) < first.timeout <= timedelta(seconds=90)
    task = sensor(tables, deferrable=True, timeout=90, silent_fail=True)
    context: Any = task_context(task)
    until = first.kwargs["until"] - 50
    event = {"state": "error", "explanation": "no answer", "report": None}
    with pytest.raises(TaskDeferred) as caught:
        task.resume_execution("execute_complete", {"event": event, "until": until}, context)
    again: Any = caught.value
    assert timedelta(seconds=10) < again.timeout <= timedelta(seconds=40)
    late = {"event": event, "until": until - 50}
    with pytest.raises(AirflowSensorTimeout, match=r"The timeout of 90 s is over\. Waited for"):
        sensor(tables, deferrable=True, timeout=90, silent_fail=True).resume_execution(
            "execute_complete", late, context
        )
