"""What becomes of a run whose application was killed, and of one that committed nothing."""

from __future__ import annotations

import logging

import pytest

from support.airflow import Tables
from zero_rename.committer import Owner
from zero_rename.orchestration.runs.outcomes import settle_killed
from zero_rename.orchestration.runs.task_run import TaskRun

RUN = TaskRun("flights", "r", "load", -1, 1, 1)
MINE = Owner(dag_id="flights", run_id="r", task_id="load", map_index=-1, try_number=1)


class TestKilled:
    """Before, while and after its application has opened a job."""

    @pytest.fixture(autouse=True)
    def logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self.log = caplog

    def warnings(self) -> list[str]:
        return [it.getMessage() for it in self.log.records if it.levelno >= logging.WARNING]

    def test_a_first_load_that_has_left_nothing(self, tables: Tables) -> None:
        """There is not even a table. It warned of what could not be settled."""
        settle_killed(tables.table(), RUN)
        assert self.warnings() == []

    def test_a_first_load_whose_job_is_taken_back_meanwhile(
        self, tables: Tables, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table, job = tables.table(), tables.undecided(1, owner=MINE)
        seen = table.open_jobs()
        tables.bucket.client.delete_object(Bucket=tables.bucket.name, Key=table.root.open_key(job))
        monkeypatch.setattr(table, "open_jobs", lambda: seen)
        settle_killed(table, RUN)
        assert self.warnings() == []

    def test_a_first_load_in_the_middle_of_its_job(self, tables: Tables) -> None:
        job = tables.undecided(1, owner=MINE)
        settle_killed(tables.table(), RUN)
        assert tables.table().job_state(job) == "aborted"
        assert tables.bucket.uploads() == []
        assert self.warnings() == []
        assert f"{job}: aborted" in self.log.text

    def test_what_cannot_be_settled_is_said(self, tables: Tables) -> None:
        tables.undecided(1, owner=MINE)
        tables.bucket.client.put_object(
            Bucket=tables.bucket.name,
            Key=f"{tables.table().root.control_prefix}table.json",
            Body=b"{",
        )
        settle_killed(tables.table(), RUN)
        (said,) = self.warnings()
        assert "could not be settled now" in said
