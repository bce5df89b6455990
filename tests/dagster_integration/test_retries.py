"""Steps retried and runs re-executed after a commit: the rows are there once. And what is not
retried, since it would fail again, or write over what others did."""

from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import RunFailureReason
from dagster._core.execution.retries import auto_reexecution_should_retry_run
from dagster._core.storage.tags import (
    MAX_RETRIES_TAG,
    RESUME_RETRY_TAG,
    RETRY_NUMBER_TAG,
    STEP_SELECTION_TAG,
)

from dagster_zero_rename import ZeroRenameResource
from dagster_zero_rename.asset_step import AssetStep
from support import dagster_loads
from support.dagster_loads import (
    SCHEMA,
    Load,
    days,
    delta_flights_job,
    fail,
    flights,
    flights_job,
    materialisations,
    rows,
    told,
)
from zero_rename.committer.errors import StoreUnfitError, StoreUnreachableError
from zero_rename.committer.store.driver import BotoDriver
from zero_rename.committer.store.requests import CompleteUpload
from zero_rename.tables.table_at import delta_at

pytestmark = pytest.mark.memory_s3

MODES = ("overwrite", "append")


def numbers(zero: ZeroRenameResource) -> list[int]:
    return sorted(zero.table("flights").to_arrow()["number"].to_pylist())


@pytest.mark.parametrize("mode", MODES)
def test_a_step_retried_after_its_commit_reports_it(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance, mode: str
) -> None:
    def again() -> None:
        load.numbers = {"2013-01-01": [8, 9]}
        raise dg.RetryRequested(max_retries=1)

    load.mode, load.numbers, load.failures = mode, {"2013-01-01": [1, 2]}, [again]
    result = dg.materialize(
        [flights], resources={"zero": zero}, instance=instance, partition_key="2013-01-01"
    )
    assert (load.calls, numbers(zero)) == (2, [1, 2])
    [told] = materialisations(result)
    assert told.metadata["zero_rename/repeated"].value is True
    assert told.metadata["zero_rename/rows"].value == 2


def test_a_try_that_died_after_its_decision_is_applied_and_reported(
    load: Load,
    zero: ZeroRenameResource,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    carry_out, dead = BotoDriver.perform, [False]

    def perform(driver: BotoDriver, request: Any) -> Any:
        dead[0] |= isinstance(request, CompleteUpload) and "/day=" in request.key
        if dead[0]:
            raise RuntimeError("killed")
        return carry_out(driver, request)

    monkeypatch.setattr(BotoDriver, "perform", perform)
    load.numbers = {"2013-01-01": [1, 2]}
    first = execute(instance)
    assert not first.success
    monkeypatch.setattr(BotoDriver, "perform", carry_out)
    load.numbers = {"2013-01-01": [8]}
    assert zero.table("flights").open_jobs()[0].decided == "commit"
    again = execute(instance, dg.ReexecutionOptions.from_failure(first.run_id, instance))
    assert (again.success, numbers(zero), zero.table("flights").open_jobs()) == (True, [1, 2], [])
    assert materialisations(again)[0].metadata["zero_rename/repeated"].value is True


def first_run(load: Load, mode: str, instance: dg.DagsterInstance) -> Any:
    load.mode, load.failures = mode, [fail]
    load.numbers = {"2013-01-01": [1], "2013-01-03": [3]}
    return execute(instance)


def execute(
    instance: dg.DagsterInstance,
    again: dg.ReexecutionOptions | None = None,
    mark: Mapping[str, str] | None = None,
    job: Callable[[], dg.JobDefinition] = flights_job,
) -> Any:
    tags = {**days("2013-01-01", "2013-01-03"), **(mark or {})}
    return dagster_loads.execute(job, instance, tags, again)


# Dagster's own marks of such runs: DagsterInstance.create_reexecuted_run for a run that somebody
# re-executes from its failure, the daemon for one that it retries by itself. Dagster's Python API
# sets neither: such a run is known by its plan.
@pytest.mark.parametrize("mark", [{RESUME_RETRY_TAG: "true"}, {RETRY_NUMBER_TAG: "1"}, {}])
@pytest.mark.parametrize("mode", MODES)
def test_a_run_re_executed_from_its_failure_reports_what_it_committed(
    load: Load,
    zero: ZeroRenameResource,
    instance: dg.DagsterInstance,
    mode: str,
    mark: dict[str, str],
) -> None:
    first = first_run(load, mode, instance)
    assert not first.success
    load.numbers = {"2013-01-01": [8], "2013-01-02": [9]}
    again = execute(instance, dg.ReexecutionOptions.from_failure(first.run_id, instance), mark)
    assert (again.success, load.calls, numbers(zero)) == (True, 2, [1, 3])
    assert len(materialisations(again)) == 3


@pytest.mark.parametrize("as_a_whole", [False, True])
def test_job_that_a_killed_run_left_in_a_delta_table_is_closed_once_its_retry_has_committed(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance, as_a_whole: bool
) -> None:
    """Dagster retries a run whose worker was killed by another run."""
    table = delta_at(zero.table("flights"))

    def dies(context: dg.AssetExecutionContext) -> None:
        step = AssetStep.of(context)
        run = {"owner": step.owner, "idempotency_key": step.idempotency_key}
        table.job(SCHEMA, partition_by=("day",), on_repeat="replace_own", **run).__enter__()
        fail()

    load.deaths.append(dies)
    load.numbers = {"2013-01-01": [1]}
    first = execute(instance, job=delta_flights_job)
    assert len(table.open_jobs()) == 1
    again = dg.ReexecutionOptions.from_failure(first.run_id, instance)
    if as_a_whole:
        again = dg.ReexecutionOptions(first.run_id)
    assert execute(instance, again, job=delta_flights_job).success
    assert table.open_jobs() == []


@pytest.mark.parametrize("mode", MODES)
def test_a_run_re_executed_as_a_whole_replaces_what_the_first_committed(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance, mode: str
) -> None:
    first = first_run(load, mode, instance)
    load.numbers = {"2013-01-01": [8], "2013-01-02": [9]}
    again = execute(instance, dg.ReexecutionOptions(first.run_id))
    assert (again.success, numbers(zero)) == (True, [8, 9])


@pytest.mark.parametrize("mark", [{RESUME_RETRY_TAG: "true"}, {RETRY_NUMBER_TAG: "1"}])
def test_a_run_that_ended_well_and_is_re_executed_loads_anew(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance, mark: dict[str, str]
) -> None:
    """Though its tags, which Dagster hands on to the new run, say that it was itself a retry."""
    first = first_run(load, "overwrite", instance)
    retried = execute(instance, dg.ReexecutionOptions.from_failure(first.run_id, instance), mark)
    assert (retried.success, numbers(zero)) == (True, [1, 3])
    load.numbers = {"2013-01-01": [8]}
    again = execute(instance, dg.ReexecutionOptions(retried.run_id), mark)
    assert (again.success, load.calls, numbers(zero)) == (True, 3, [8])


@pytest.mark.parametrize("mode", MODES)
def test_steps_that_somebody_chose_replace_what_they_committed(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance, mode: str
) -> None:
    """As Dagster's page has it, which names the steps in a tag."""
    first = first_run(load, mode, instance)
    load.numbers = {"2013-01-01": [8], "2013-01-02": [9]}
    chosen = dg.ReexecutionOptions(first.run_id, step_selection=["flights"])
    again = execute(instance, chosen, {STEP_SELECTION_TAG: "flights"})
    assert (again.success, numbers(zero)) == (True, [8, 9])


def test_a_retry_of_a_run_that_did_it_again_is_of_that_chain(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    first = first_run(load, "append", instance)
    load.numbers, load.failures = {"2013-01-01": [8]}, [fail]
    whole = execute(instance, dg.ReexecutionOptions(first.run_id))
    load.numbers = {"2013-01-01": [9]}
    again = execute(instance, dg.ReexecutionOptions.from_failure(whole.run_id, instance))
    assert (whole.success, again.success, numbers(zero)) == (False, True, [8])


def test_another_run_appends_to_what_is_there(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    load.mode, load.numbers = "append", {"2013-01-01": [1]}
    assert execute(instance).success
    load.numbers = {"2013-01-01": [2]}
    assert execute(instance).success
    assert numbers(zero) == [1, 2]


DAY = "2013-01-01"


def retried(
    zero: ZeroRenameResource, instance: dg.DagsterInstance, function: Callable[..., Any]
) -> Any:
    """The result of an asset whose step is retried twice, if anything lets it."""
    made = dg.asset(
        name="flights",
        partitions_def=flights.partitions_def,
        metadata={"partition_expr": "day"},
        retry_policy=dg.RetryPolicy(max_retries=2),
    )(function)
    return dg.materialize(
        [made],
        resources={"zero": zero},
        instance=instance,
        partition_key=DAY,
        raise_on_error=False,
        tags={MAX_RETRIES_TAG: "3"},
    )


def final_failure(result: Any, instance: dg.DagsterInstance) -> dict[str, Any]:
    """The metadata of a failure that neither the step's policy nor the daemon repeats."""
    assert not result.success
    [failed] = [event for event in result.all_events if event.is_step_failure]
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert not auto_reexecution_should_retry_run(instance, run, RunFailureReason.STEP_FAILURE)
    user = failed.step_failure_data.user_failure_data
    return {"text": user.description} | {k: v.value for k, v in user.metadata.items()}


def test_rows_that_cannot_be_right_are_not_tried_again(
    zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    calls = []

    def wrong(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        calls.append(1)
        return zero.write(context, rows(["2013-01-02"], {"2013-01-02": [1]}))

    told = final_failure(retried(zero, instance, wrong), instance)
    assert len(calls) == 1
    assert "rows for the partition 'day=2013-01-02'" in told["text"]
    assert told["zero_rename/error"] == "InvalidInputError"
    assert told["zero_rename/remedy"] in told["text"]


def test_a_conflict_is_not_tried_again(
    zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    """The next try would begin on what the other writer left, and write over it."""
    table = zero.table("flights")

    def other(number: int) -> None:
        with table.job(SCHEMA, mode="replace", partition_by=["day"]) as job:
            job.write(rows([DAY], {DAY: [number]}))

    def late(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        base = table.snapshot()
        other(2)
        return zero.write(context, rows([DAY], {DAY: [3]}), base=base)

    other(1)
    told = final_failure(retried(zero, instance, late), instance)
    assert told["zero_rename/error"] == "CommitConflictError"
    assert told["zero_rename/table"] == table.root.url
    assert numbers(zero) == [2]


@pytest.mark.usefixtures("s3_server")
def test_a_second_writer_where_one_is_allowed_is_not_tried_again(
    zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    """The other one is done by then, and its rows would be written over."""
    table = zero.table("flights")

    def late(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        with table.job(SCHEMA, mode="replace", partition_by=["day"]) as other:
            other.write(rows([DAY], {DAY: [2]}))
            try:
                return zero.write(context, rows([DAY], {DAY: [3]}))
            except (dg.Failure, StoreUnfitError) as error:
                refused = error
        raise refused

    told = final_failure(retried(zero, instance, late), instance)
    assert told["zero_rename/error"] == "StoreUnfitError"
    assert numbers(zero) == [2]


def test_what_a_retry_may_mend_is_tried_again(
    zero: ZeroRenameResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out, silent = BotoDriver.perform, [True]

    def perform(driver: BotoDriver, request: Any) -> Any:
        if silent.pop() if silent else False:
            raise StoreUnreachableError("no answer")
        return carry_out(driver, request)

    monkeypatch.setattr(BotoDriver, "perform", perform)

    def one(context: dg.AssetExecutionContext, zero: ZeroRenameResource):
        return zero.write(context, rows([DAY], {DAY: [1]}))

    result = retried(zero, instance, one)
    assert (result.success, silent, numbers(zero)) == (True, [], [1])
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags[MAX_RETRIES_TAG] == "3"


def test_try_number_of_a_run_that_does_anothers_work_again_is_2(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    """Then a run looks, before it submits anything, whether a conflict was settled against it."""
    first = first_run(load, "overwrite", instance)
    execute(instance, dg.ReexecutionOptions(first.run_id))
    table = zero.table("flights")
    owners = [table.owner_of(it.job) for it in table.files()]
    assert {it.try_number for it in owners if it is not None} == {2}


@pytest.mark.parametrize("before", [{}, {MAX_RETRIES_TAG: "3"}])
def test_run_re_executed_from_a_final_failure_is_retried_by_the_daemon_again(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance, before: dict[str, str]
) -> None:
    """Dagster's page hands the tags of the failed run on to it."""
    load.numbers, load.mode = {"2013-01-01": [1]}, "ignore"
    first = instance.get_run_by_id(execute(instance, mark=before).run_id)
    assert first is not None
    assert first.tags[MAX_RETRIES_TAG] == "0"
    for mode, wanted in (("ignore", "0"), ("overwrite", before.get(MAX_RETRIES_TAG, "0"))):
        load.mode = mode
        again = execute(instance, dg.ReexecutionOptions(first.run_id), first.tags)
        run = instance.get_run_by_id(again.run_id)
        assert run is not None
        assert (again.success, run.tags[MAX_RETRIES_TAG]) == (mode == "overwrite", wanted)


@pytest.mark.parametrize("layout", ["directory", "delta"])
def test_rows_that_a_retry_tells_of_are_those_that_are_there(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance, layout: str
) -> None:
    """Another run has replaced a day before the run is executed again from its failure."""
    made = ZeroRenameResource(table_root=zero.table_root, layout=layout)
    resources = {"zero": made}

    def again() -> None:
        load.numbers = {"2013-01-01": [7, 8, 9]}
        given = {"resources": resources, "instance": instance, "partition_key": "2013-01-01"}
        assert dg.materialize([flights], **given).success
        raise dg.RetryRequested(max_retries=1)

    load.numbers, load.failures = {"2013-01-01": [1, 2], "2013-01-02": [3]}, [again]
    tags = days("2013-01-01", "2013-01-02")
    done = dg.materialize([flights], resources=resources, instance=instance, tags=tags)
    found = told(done)
    counts = {key: it["dagster/partition_row_count"] for key, it in found.items()}
    assert counts == {"2013-01-01": 3, "2013-01-02": 1}
    assert {key: it["zero_rename/rows"] for key, it in found.items()} == {
        "2013-01-01": 2,
        "2013-01-02": 1,
    }
    assert {it["zero_rename/repeated"] for it in found.values()} == {True}
