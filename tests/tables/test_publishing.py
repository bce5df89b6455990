"""Jobs of a Delta table that are published later: written, audited, published or aborted."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from support.delta_tables import URL, on, rows
from support.memory_store import ManualClock, MemoryStore
from zero_rename.committer.errors import (
    CommitConflictError,
    InvalidInputError,
    JobFencedError,
    RefusedError,
    SupersededRunError,
    TableNotFoundError,
)
from zero_rename.committer.store import requests as s
from zero_rename.committer.upkeep.recovery import Outcome
from zero_rename.tables import DeltaTable

WEEK = 7 * 24 * 3600.0


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    write(on(store), rows(1))
    return store


def write(table: DeltaTable, data: pa.Table, **options: Any) -> Any:
    with table.job(data.schema, partition_by=["day"], **options) as job:
        job.write(data)
    return job


def leave(store: MemoryStore, *values: int, day: str = "1", **options: Any) -> str:
    """Write a job that waits; return its id."""
    job = write(on(store), rows(*values, day=day), publish=False, **options)
    assert job.committed is None
    return job.unpublished.job


def values(store: MemoryStore, **wanted: Any) -> list[int]:
    return sorted(on(store).scan(**wanted).to_arrow()["value"].to_pylist())


def waiting(store: MemoryStore) -> list[str]:
    return [it.job for it in on(store).unpublished()]


def advance(store: MemoryStore, seconds: float) -> None:
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(seconds)


def records(store: MemoryStore) -> list[str]:
    control = "flights/_zero_rename/"
    return [key for name in ("open", "jobs") for key in store.keys(f"{control}{name}/")]


class TestWriteAuditPublish:
    def test_rows_are_seen_by_the_jobs_id_alone_until_it_is_published(
        self, store: MemoryStore
    ) -> None:
        job = leave(store, 5, 6)
        assert (values(store), values(store, job=job)) == ([1], [5, 6])
        done = on(store).publish(job)
        assert (done.job, done.rows, done.repeated) == (job, 2, False)
        assert values(store) == [1, 5, 6]
        assert records(store) == []

    def test_job_that_waits_is_no_rival_of_another_run(self, store: MemoryStore) -> None:
        at_work = on(store).job(rows(5).schema, mode="append")
        with at_work:
            leave(store, 6)
            assert [it.job for it in on(store).rival_jobs(["day=1"], False)] == [at_work.job]
        assert on(store).rival_jobs(["day=1"], False) == []

    def test_rows_of_a_published_job_are_read_by_its_id(self, store: MemoryStore) -> None:
        job = leave(store, 5)
        on(store).publish(job)
        assert values(store, job=job) == [5]

    def test_rows_of_a_job_are_read_by_partition_and_filter(self, store: MemoryStore) -> None:
        data = pa.concat_tables([rows(5), rows(6, 7, day="2")])
        job = write(on(store), data, publish=False).unpublished.job
        assert values(store, job=job, partitions=["day=2"], filter=[("value", ">", 6)]) == [7]

    def test_job_tells_what_waits(self, store: MemoryStore) -> None:
        job = write(on(store), rows(5, 6), publish=False, idempotency_key="run").unpublished
        assert (job.rows, job.files, job.run, job.repeated) == (2, 1, "run", False)
        assert [it.partition for it in job.partitions] == ["day=1"]
        assert job.kept_until - job.opened_at == WEEK - 3600
        assert on(store).unpublished() == [job]

    def test_replace_empties_its_partitions_as_it_is_published(self, store: MemoryStore) -> None:
        job = leave(store, 5, mode="overwrite")
        write(on(store), rows(2, day="2"))
        done = on(store).publish(job)
        assert [(it.partition, it.removed) for it in done.partitions] == [("day=1", 1)]
        assert values(store) == [2, 5]

    def test_new_columns_are_the_tables_as_they_are_published(self, store: MemoryStore) -> None:
        more = rows(5).append_column("late", pa.array([True]))
        job = write(on(store), more, schema_mode="merge", publish=False).unpublished.job
        assert on(store).schema.names == ["day", "value"]
        assert on(store).scan(job=job).to_arrow()["late"].to_pylist() == [True]
        on(store).publish(job)
        assert on(store).schema.names == ["day", "value", "late"]

    def test_table_is_made_without_rows_where_there_is_none(self) -> None:
        store = MemoryStore()
        job = leave(store, 5)
        assert (values(store), values(store, job=job)) == ([], [5])
        on(store).publish(job)
        assert values(store) == [5]

    @pytest.mark.parametrize("before", ["/_delta_log/00000000000000000000.json", "/open/"])
    def test_no_entry_makes_the_table_where_another_job_has_made_it_meanwhile(
        self, before: str
    ) -> None:
        store = MemoryStore()
        records: list[Any] = []
        made: list[Any] = []

        def fault(request: Any, apply: Any) -> Any:
            if isinstance(request, s.Put) and before in request.key and not made:
                records.append(request.key)
                # The second open record is that of the job which makes the table.
                if before != "/open/" or len(records) == 2:
                    made.append(write(on(store), rows(1)))
            return apply(request)

        job = write(on(store, fault), rows(5), publish=False)
        assert [it.operation for it in on(store).history()] == ["WRITE"]
        on(store).publish(job.unpublished.job)
        assert values(store) == [1, 5]

    def test_failing_block_leaves_no_job(self, store: MemoryStore) -> None:
        job = on(store).job(rows(5).schema, publish=False)
        with pytest.raises(InvalidInputError), job:
            job.write(pa.table({"other": [1]}))
        assert (job.unpublished, records(store)) == (None, [])

    def test_rows_of_a_job_and_a_former_state_are_refused_at_once(self, store: MemoryStore) -> None:
        with pytest.raises(InvalidInputError, match="one of the two"):
            on(store).scan(job="zr1-x", as_of=0)


class TestConflicts:
    def test_replace_is_refused_where_its_partition_changed_since_its_base(
        self, store: MemoryStore
    ) -> None:
        job = leave(store, 5, mode="overwrite")
        write(on(store), rows(2))
        with pytest.raises(CommitConflictError, match="changed partition"):
            on(store).publish(job)
        assert (values(store), waiting(store)) == ([1, 2], [job])

    @pytest.mark.parametrize("policy", [{}, {"on_conflict": "newest_run", "run_rank": 1}])
    def test_run_loads_again_once_its_overtaken_job_is_aborted_as_the_error_says(
        self, store: MemoryStore, policy: dict[str, Any]
    ) -> None:
        run = {"mode": "overwrite", "day": "2", "idempotency_key": "run"}
        job = leave(store, 5, **run, **policy)
        write(on(store), rows(9, day="2"), mode="overwrite", on_conflict="newest_run", run_rank=2)
        with pytest.raises(RefusedError, match="abort the job first"):
            on(store).publish(job)
        assert leave(store, 6, **run, on_conflict="last_wins") == job
        on(store).abort(job)
        on(store).publish(leave(store, 6, **run, on_conflict="last_wins"))
        assert values(store) == [1, 6]

    def test_append_is_refused_where_its_partition_was_replaced(self, store: MemoryStore) -> None:
        job = leave(store, 5)
        write(on(store), rows(2), mode="overwrite")
        with pytest.raises(CommitConflictError, match="replaced a partition"):
            on(store).publish(job)
        assert values(store) == [2]

    def test_last_wins_removes_what_came_since(self, store: MemoryStore) -> None:
        job = leave(store, 5, mode="overwrite", on_conflict="last_wins")
        write(on(store), rows(2))
        on(store).publish(job)
        assert values(store) == [5]

    def test_late_run_gives_way_to_a_newer_one_by_name(self, store: MemoryStore) -> None:
        newest = {"mode": "overwrite", "on_conflict": "newest_run", "day": "2"}
        job = leave(store, 5, run_rank=1, **newest)
        on(store).publish(leave(store, 9, run_rank=2, **newest))
        with pytest.raises(SupersededRunError, match="day=2"):
            on(store).publish(job)
        assert (values(store), waiting(store)) == ([1, 9], [job])

    def test_newer_run_that_waited_replaces_an_older_one(self, store: MemoryStore) -> None:
        newest = {"mode": "overwrite", "on_conflict": "newest_run", "day": "2"}
        job = leave(store, 9, run_rank=2, **newest)
        on(store).publish(leave(store, 5, run_rank=1, **newest))
        on(store).publish(job)
        assert values(store) == [1, 9]

    @pytest.mark.parametrize(
        "policy",
        [
            {"on_repeat": "append", "idempotency_key": "run"},
            {"on_conflict": "newest_run", "on_superseded": "skip", "run_rank": 1},
        ],
        ids=lambda it: next(iter(it)),
    )
    def test_policy_that_a_waiting_job_cannot_keep_is_refused_by_name(
        self, store: MemoryStore, policy: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidInputError, match="publish=False is given with on_"):
            leave(store, 5, **policy)
        assert records(store) == []


class TestRepeats:
    def test_second_publication_is_told_as_repeated(self, store: MemoryStore) -> None:
        job = leave(store, 5, idempotency_key="run")
        first = on(store).publish(job)
        again = on(store).publish(job)
        assert (again.job, again.rows, again.repeated) == (job, 1, True)
        assert again.version == first.version
        assert values(store) == [1, 5]

    def test_publication_beside_another_one_writes_one_entry(self, store: MemoryStore) -> None:
        job = leave(store, 5)
        others: list[Any] = []

        def beside(request: Any, apply: Any) -> Any:
            if isinstance(request, s.Put) and "_delta_log" in request.key and not others:
                others.append(on(store).publish(job))
            return apply(request)

        done = on(store, beside).publish(job)
        assert done.version == others[0].version
        assert values(store) == [1, 5]
        assert len(on(store).history()) == 2

    def test_retry_of_a_run_that_waits_writes_nothing_and_names_its_job(
        self, store: MemoryStore
    ) -> None:
        job = leave(store, 5, idempotency_key="run")
        before = set(store.objects)
        again = write(on(store), rows(6), publish=False, idempotency_key="run")
        assert (again.unpublished.job, again.unpublished.repeated) == (job, True)
        assert set(store.objects) == before

    def test_reloaded_run_waits_in_the_place_of_its_former_job(self, store: MemoryStore) -> None:
        former = leave(store, 5, idempotency_key="run")
        job = leave(store, 6, idempotency_key="run", on_repeat="replace_own")
        assert waiting(store) == [job]
        assert store.keys(f"flights/data/{former}/") == []
        with pytest.raises(JobFencedError, match="loaded again"):
            on(store).publish(former)
        on(store).publish(job)
        assert values(store) == [1, 6]

    def test_reloaded_run_replaces_what_its_published_job_had_loaded(
        self, store: MemoryStore
    ) -> None:
        on(store).publish(leave(store, 5, idempotency_key="run"))
        job = leave(store, 6, idempotency_key="run", on_repeat="replace_own")
        assert values(store) == [1, 5]
        on(store).publish(job)
        assert values(store) == [1, 6]

    def test_job_whose_run_was_loaded_meanwhile_is_refused(self, store: MemoryStore) -> None:
        job = leave(store, 5, idempotency_key="run")
        write(on(store), rows(6), idempotency_key="run")
        with pytest.raises(CommitConflictError, match="has loaded again meanwhile"):
            on(store).publish(job)
        assert values(store) == [1, 6]
        on(store).abort(job)
        assert waiting(store) == []

    def test_job_that_waits_is_no_finished_run(self, store: MemoryStore) -> None:
        job = leave(store, 5, idempotency_key="run")
        assert on(store).job_of_key("run") is None
        found = on(store).unpublished_of_key("run")
        assert found is not None
        assert found.job == job

    def test_run_that_has_committed_leaves_nothing_unpublished(self, store: MemoryStore) -> None:
        write(on(store), rows(5), idempotency_key="run")
        again = write(on(store), rows(5), idempotency_key="run", publish=False)
        assert (again.committed.repeated, again.unpublished) == (True, None)
        assert records(store) == []

    def test_job_that_another_load_made_stale_is_not_taken_for_the_runs(
        self, store: MemoryStore
    ) -> None:
        leave(store, 5, idempotency_key="run")
        write(on(store), rows(6), idempotency_key="run")
        assert on(store).unpublished_of_key("run") is None

    def test_reload_of_a_job_published_beside_it_is_refused(self, store: MemoryStore) -> None:
        former = leave(store, 5, idempotency_key="run")
        again = on(store).job(
            rows(6).schema, publish=False, idempotency_key="run", on_repeat="replace_own"
        )
        with again:
            again.write(rows(6))
            on(store).publish(former)
        assert again.unpublished is not None
        with pytest.raises(CommitConflictError, match=f"job {former}, version 1"):
            on(store).publish(again.unpublished.job)
        assert values(store) == [1, 5]

    def test_reload_that_meets_the_publication_of_its_former_job_leaves_nothing(
        self, store: MemoryStore
    ) -> None:
        former = leave(store, 5, idempotency_key="run")
        published: list[Any] = []

        def beside(request: Any, apply: Any) -> Any:
            answer = apply(request)
            if isinstance(request, s.Get) and f"jobs/{former}" in request.key and not published:
                published.append(on(store).publish(former))
            return answer

        again = on(store, beside).job(
            rows(6).schema, publish=False, idempotency_key="run", on_repeat="replace_own"
        )
        with pytest.raises(CommitConflictError, match="published meanwhile"), again:
            again.write(rows(6))
        assert (values(store), waiting(store)) == ([1, 5], [])


class TestAborts:
    def test_aborted_job_is_gone_with_its_files_and_never_published(
        self, store: MemoryStore
    ) -> None:
        job = leave(store, 5)
        on(store).abort(job)
        assert (values(store), records(store)) == ([1], [])
        assert store.keys(f"flights/data/{job}/") == []
        on(store).abort(job)
        for ask in (on(store).publish, on(store).rows_of_job):
            with pytest.raises(JobFencedError, match="was aborted"):
                ask(job)

    def test_abort_of_a_published_job_is_refused_and_names_its_undoing(
        self, store: MemoryStore
    ) -> None:
        job = leave(store, 5, day="2")
        on(store).publish(job)
        write(on(store), rows(6))
        with pytest.raises(CommitConflictError, match=f"zero-rename undo {URL} --job {job}"):
            on(store).abort(job)
        assert values(store) == [1, 5, 6]
        on(store).undo(job, apply=True)
        assert values(store) == [1, 6]

    @pytest.mark.parametrize("verb", ["publish", "abort", "rows_of_job"])
    def test_unknown_job_is_refused(self, store: MemoryStore, verb: str) -> None:
        with pytest.raises(InvalidInputError, match="No job zr1-x waits"):
            getattr(on(store), verb)("zr1-x")

    def test_job_at_work_is_not_published(self, store: MemoryStore) -> None:
        with on(store).job(rows(5).schema, publish=False) as job:
            job.write(rows(5))
            with pytest.raises(InvalidInputError, match="waits once it has ended"):
                on(store).publish(job.opened.job)
        assert waiting(store) == [job.job]

    def test_publication_without_a_table_is_refused(self) -> None:
        with pytest.raises(TableNotFoundError):
            on(MemoryStore()).publish("zr1-x")


class TestUpkeep:
    @pytest.mark.parametrize("patience", [None, 0.0])
    def test_recovery_and_purge_leave_a_job_that_waits(
        self, store: MemoryStore, patience: float | None
    ) -> None:
        job = leave(store, 5)
        advance(store, WEEK - 7200)
        found = on(store).recover(patience)
        assert [(it.job, it.outcome) for it in found] == [(job, Outcome.LEFT)]
        assert "waits to be published" in found[0].detail
        assert on(store).plan_recovery(patience) == found
        assert on(store).settle([job])[0].outcome is Outcome.LEFT
        assert on(store).purge(apply=True) == []
        assert on(store).open_jobs()[0].unpublished
        on(store).publish(job)
        assert values(store) == [1, 5]

    def test_job_that_has_waited_for_the_retention_is_not_published(
        self, store: MemoryStore
    ) -> None:
        job = leave(store, 5)
        advance(store, WEEK - 3600)
        with pytest.raises(CommitConflictError, match=r"for 7\.0 days"):
            on(store).publish(job)
        assert values(store) == [1]
        assert on(store).recover()[0].outcome is Outcome.ABORTED

    def test_run_whose_job_can_no_longer_be_published_loads_again(self, store: MemoryStore) -> None:
        first = write(on(store), rows(5), publish=False, idempotency_key="run").unpublished
        advance(store, WEEK - 3600)
        again = write(on(store), rows(5), publish=False, idempotency_key="run").unpublished
        assert (again.repeated, again.job != first.job) == (False, True)
        on(store).publish(again.job)
        assert values(store) == [1, 5]

    def test_job_that_has_waited_for_the_retention_is_fenced_by_recovery(
        self, store: MemoryStore
    ) -> None:
        job = leave(store, 5)
        advance(store, WEEK)
        assert on(store).recover()[0].outcome is Outcome.ABORTED
        files = store.keys(f"flights/data/{job}/")
        assert on(store).purge(apply=True) == files
        with pytest.raises(JobFencedError):
            on(store).publish(job)

    def test_job_given_up_by_name_is_aborted(self, store: MemoryStore) -> None:
        job = leave(store, 5)
        assert on(store).give_up([job])[0].outcome is Outcome.ABORTED
        assert waiting(store) == []

    def test_published_job_whose_publisher_died_is_finished_by_recovery(
        self, store: MemoryStore
    ) -> None:
        job = leave(store, 5)

        def dies(request: Any, apply: Any) -> Any:
            if isinstance(request, s.Delete):
                raise KeyboardInterrupt
            return apply(request)

        with pytest.raises(KeyboardInterrupt):
            on(store, dies).publish(job)
        planned = on(store).plan_recovery()
        assert [it.outcome for it in planned] == [Outcome.WOULD_FINISH]
        assert on(store).recover()[0].outcome is Outcome.COMMITTED
        assert (values(store), records(store)) == ([1, 5], [])

    def test_doctor_has_nothing_to_say_of_a_job_that_waits(self, store: MemoryStore) -> None:
        job = leave(store, 5)
        advance(store, WEEK / 2)
        assert [it for it in on(store).doctor() if job in str(it)] == []


def test_job_that_was_aborted_a_thousand_runs_ago_is_still_fenced(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checksum files name only the newest transactions."""
    monkeypatch.setattr("zero_rename.log.checksum.TRANSACTIONS", 3)
    job = leave(store, 2)
    on(store).abort(job)
    for run in range(5):
        write(on(store), rows(run), idempotency_key=f"run {run}")
    assert on(store).is_fenced(job)
    assert not on(store).is_fenced(job[:-1] + ("0" if job[-1] != "0" else "1"))


@pytest.mark.parametrize("owner", ["airflow", ["airflow"], None, 5])
def test_open_record_whose_owner_is_damaged_is_listed_as_damaged(
    store: MemoryStore, owner: object
) -> None:
    """Sensors list the open jobs at each poll."""
    body = json.dumps({"kind": "open-in-log", "job": "x", "owner": owner}).encode()
    store.apply(s.PutFile("flights/_zero_rename/open/x.json", body))
    (job,) = on(store).open_jobs()
    assert job.job == "x"
    assert "cannot be read" in job.damage


@pytest.mark.parametrize("limit", [-1, 1.5, True])
def test_history_of_an_invalid_number_of_versions_is_refused(
    store: MemoryStore, limit: Any
) -> None:
    with pytest.raises(InvalidInputError, match="limit"):
        on(store).history(limit)
    assert on(store).history(0) == []
