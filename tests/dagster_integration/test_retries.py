"""Steps retried and runs re-executed after a commit: the rows are there once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.tags import RESUME_RETRY_TAG, RETRY_NUMBER_TAG

from dagster_zero_rename import ZeroRenameResource
from support.dagster_loads import Load, days, fail, flights, flights_job
from zero_rename.committer.s3.driver import BotoDriver
from zero_rename.committer.s3.requests import CompleteUpload

MODES = ("overwrite", "append")


def numbers(zero: ZeroRenameResource) -> list[int]:
    return sorted(zero.table("flights").to_arrow()["number"].to_pylist())


def materialisations(result: Any) -> list[dg.AssetMaterialization]:
    return [
        event.step_materialization_data.materialization
        for event in result.all_events
        if event.is_step_materialization
    ]


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
    again = execute(
        instance,
        dg.ReexecutionOptions.from_failure(first.run_id, instance),
        {RESUME_RETRY_TAG: "true"},
    )
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
) -> Any:
    with dg.execute_job(
        dg.reconstructable(flights_job),
        instance=instance,
        raise_on_error=False,
        reexecution_options=again,
        tags={**days("2013-01-01", "2013-01-03"), **(mark or {})},
    ) as result:
        return result


# Dagster's own marks of such runs: DagsterInstance.create_reexecuted_run for a run that somebody
# re-executes from its failure, the daemon for one that it retries by itself. Dagster's Python API
# sets neither.
@pytest.mark.parametrize("mark", [{RESUME_RETRY_TAG: "true"}, {RETRY_NUMBER_TAG: "1"}])
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


@pytest.mark.parametrize("mode", MODES)
def test_a_run_re_executed_as_a_whole_replaces_what_the_first_committed(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance, mode: str
) -> None:
    first = first_run(load, mode, instance)
    load.numbers = {"2013-01-01": [8], "2013-01-02": [9]}
    again = execute(instance, dg.ReexecutionOptions(first.run_id))
    assert (again.success, numbers(zero)) == (True, [8, 9])


def test_a_retry_of_a_run_that_did_it_again_is_of_that_chain(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    first = first_run(load, "append", instance)
    load.numbers, load.failures = {"2013-01-01": [8]}, [fail]
    whole = execute(instance, dg.ReexecutionOptions(first.run_id))
    load.numbers = {"2013-01-01": [9]}
    again = execute(
        instance,
        dg.ReexecutionOptions.from_failure(whole.run_id, instance),
        {RESUME_RETRY_TAG: "true"},
    )
    assert (whole.success, again.success, numbers(zero)) == (False, True, [8])


def test_another_run_appends_to_what_is_there(
    load: Load, zero: ZeroRenameResource, instance: dg.DagsterInstance
) -> None:
    load.mode, load.numbers = "append", {"2013-01-01": [1]}
    assert execute(instance).success
    load.numbers = {"2013-01-01": [2]}
    assert execute(instance).success
    assert numbers(zero) == [1, 2]
