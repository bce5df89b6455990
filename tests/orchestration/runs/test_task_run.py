from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from support.airflow import task_context
from zero_rename.committer import InvalidInputError, Owner
from zero_rename.orchestration.runs.task_run import TaskRun, check_on_repeat, idempotency_key_of
from zero_rename.provider.task_context import task_run


def run(retries: int = 2, **context: Any) -> TaskRun:
    return task_run(task_context(SimpleNamespace(task_id="load", retries=retries), **context))


def test_the_key_names_the_run_and_not_the_try() -> None:
    first, second = run(try_number=1), run(try_number=2)
    assert first.idempotency_key == second.idempotency_key == "flights/scheduled__2013-02-02/load"
    assert run(map_index=3).idempotency_key == "flights/scheduled__2013-02-02/load/3"
    assert run(map_index=0).idempotency_key != first.idempotency_key


def test_no_two_runs_share_a_key() -> None:
    assert idempotency_key_of("a/b", "c", "d") != idempotency_key_of("a", "b/c", "d")
    assert idempotency_key_of("a", "b", "c/1") != idempotency_key_of("a", "b", "c", 1)


@pytest.mark.parametrize(
    ("index", "key"),
    [("3", "a/b/c/3"), (" 03 ", "a/b/c/3"), ("-1", "a/b/c"), (-1, "a/b/c"), (None, "a/b/c")],
)
def test_index_of_a_mapped_task_may_be_a_text(index: Any, key: str) -> None:
    assert idempotency_key_of("a", "b", "c", index) == key


@pytest.mark.parametrize("index", ["", "None", "x", True, 2.5, "1/2"])
def test_index_that_is_no_whole_number_is_refused(index: Any) -> None:
    with pytest.raises(InvalidInputError, match="map_index="):
        idempotency_key_of("a", "b", "c", index)


@pytest.mark.parametrize(
    ("try_number", "max_tries", "first_try", "committed_by", "expected"),
    [
        (1, 2, 1, None, "skip"),
        (2, 2, 1, None, "skip"),
        (2, 2, 1, 1, "skip"),
        (3, 2, 1, 1, "skip"),
        # Cleared after try 1: max_tries becomes 1 + 2 retries, and the next try is 2.
        (2, 3, 2, 1, "replace_own"),
        (2, 3, 2, None, "replace_own"),
        # The retry of a cleared task that had committed before it was cleared, or since.
        (3, 3, 2, 1, "replace_own"),
        (3, 3, 2, 2, "skip"),
        # Cleared again after try 3.
        (4, 5, 4, 3, "replace_own"),
        # The run was deleted and made anew, as `airflow dags test` does: tries begin at 1.
        (1, 2, 1, 1, "replace_own"),
        (1, 2, 1, 3, "replace_own"),
        # A try cannot precede its series.
        (1, 9, 1, None, "skip"),
    ],
)
def test_of_a_commit_that_does_not_say_its_series_the_try_decides(
    try_number: int, max_tries: int, first_try: int, committed_by: int | None, expected: str
) -> None:
    found = run(try_number=try_number, max_tries=max_tries)
    assert found.first_try == first_try
    by = None if committed_by is None else Owner(try_number=committed_by)
    assert found.on_repeat("auto", by) == expected
    assert found.on_repeat("append", by) == "append"


LATER = datetime(2013, 2, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # A retry, also where another task of the run was cleared meanwhile.
        ({}, {"try_number": 2}, "skip"),
        ({}, {"try_number": 2, "clear_number": 1}, "skip"),
        # The same try once more: queued again, or made anew by ``dag.test()``, whose runs begin at
        # their logical date.
        ({"try_number": 2}, {"try_number": 2}, "replace_own"),
        # The run was made anew, and this is its first try, or its second.
        ({}, {"made": LATER}, "replace_own"),
        ({}, {"made": LATER, "try_number": 2}, "replace_own"),
        # Cleared, and retries raised from 2 to 5, or lowered to 1, in the DAG file since.
        ({}, {"try_number": 2, "max_tries": 3, "retries": 5}, "replace_own"),
        ({}, {"try_number": 2, "max_tries": 2, "retries": 1}, "replace_own"),
    ],
)
def test_a_retry_skips_and_a_cleared_task_or_a_run_made_anew_replaces(
    first: dict[str, Any], second: dict[str, Any], expected: str
) -> None:
    committed = run(**{"max_tries": 2, **first})
    now = run(**{"max_tries": 2, **second})
    by = Owner(try_number=committed.try_number, series=committed.series)
    assert now.on_repeat("auto", by) == expected


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ("2013-02-02T00:00:00+00:00 0 2", "skip"),
        ("2013-02-02T00:00:00+00:00 0 1", "replace_own"),
        ("2013-02-03T00:00:00+00:00 0 2", "replace_own"),
    ],
)
def test_series_of_an_earlier_version_is_read_without_the_runs_number_of_clears(
    series: str, expected: str
) -> None:
    now = run(try_number=2, max_tries=2)
    assert now.on_repeat("auto", Owner(try_number=1, series=series)) == expected


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({}, "replace_own"),  # A first attempt repeats nothing: its run was deleted and made anew.
        ({"try_number": 2}, "skip"),
        ({"try_number": 2, "max_tries": 3}, "replace_own"),
    ],
)
def test_commit_whose_owner_is_not_on_record_is_no_reason_for_a_first_attempt_to_load_nothing(
    context: dict[str, Any], expected: str
) -> None:
    assert run(**{"max_tries": 2, **context}).on_repeat("auto", Owner()) == expected


def test_ownership() -> None:
    mine = Owner(dag_id="flights", run_id="scheduled__2013-02-02", task_id="load", try_number=9)
    assert run().owns(mine)
    assert not run(map_index=0).owns(mine)
    assert not run().owns(Owner(dag_id="flights", run_id="other", task_id="load"))
    assert not run().owns(Owner())


def test_on_repeat_is_checked() -> None:
    assert check_on_repeat("auto") == "auto"
    with pytest.raises(InvalidInputError, match="on_repeat='twice'"):
        check_on_repeat("twice")
