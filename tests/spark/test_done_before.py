"""``save()`` in a try whose work an earlier one has done: nothing is computed."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from zero_rename import Table
from zero_rename.committer import InvalidInputError, Owner
from zero_rename.committer.format.handoff import HANDOFF, HANDOFF_SETTING, Handoff
from zero_rename.spark import save
from zero_rename.spark.worker import application_of
from zero_rename.tables import DeltaTable

DATA = pa.table({"value": [1, 2], "day": [1, 1]})
FIRST = Owner(dag_id="d", run_id="r", task_id="t", try_number=1, series="s")


class Computed(BaseException):
    """The frame was to be computed."""


class Planned:
    """A part of a plan: Spark may add to it, and is not to carry it out."""

    def __init__(self, *_: object) -> None: ...

    def mapInArrow(self, *_: object) -> Planned:
        return self

    def __getattr__(self, name: str) -> Any:
        raise Computed(name)


class Frame:
    """Has columns, and is not to be computed; Spark may plan its write."""

    schema = StructType().add("value", "long").add("day", "long")
    isStreaming = False
    sparkSession = SimpleNamespace(conf=dict[str, str](), sql=Planned)
    columns = ("value", "day")
    toDF = Planned

    def __getattr__(self, name: str) -> Any:
        raise Computed(name)


@pytest.fixture
def table(s3_bucket: Any, monkeypatch: pytest.MonkeyPatch) -> Table:
    table = Table(f"s3://{s3_bucket.name}/flights")
    told = {"IDEMPOTENCY_KEY": "d/r/t", "ON_REPEAT": "skip", "DAG": "d", "RUN": "r", "TASK": "t"}
    told |= {"TABLE": table.root.url, "TRY_NUMBER": "2", "SERIES": "s"}
    for name, value in told.items():
        monkeypatch.setenv(f"ZERO_RENAME_{name}", value)
    return table


def test_what_a_submitter_says_by_a_setting_of_spark(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on AWS Glue, which has no environment variables."""
    packed = Handoff.decode(os.environ).pack()
    for name in [name for name in os.environ if name.startswith("ZERO_RENAME_")]:
        monkeypatch.delenv(name)
    load(table)
    with pytest.raises(InvalidInputError, match="No table is named"):
        written()
    # Removed again with the others, whatever is put there.
    monkeypatch.setenv(HANDOFF, "")
    frame = Frame()
    frame.sparkSession = SimpleNamespace(conf={HANDOFF_SETTING: packed})
    assert save(frame, partition_by=["day"]).repeated  # pyrefly: ignore[bad-argument-type, missing-attribute]


def load(table: Table, owner: Owner = FIRST) -> None:
    with table.job(DATA.schema, partition_by=("day",), idempotency_key="d/r/t", owner=owner) as job:
        job.write(DATA)


def written(**arguments: Any) -> Any:
    return save(Frame(), partition_by=["day"], **arguments)  # pyrefly: ignore[bad-argument-type]


def test_what_an_earlier_try_committed_is_not_computed_again(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    load(table)
    report = written()
    assert "nothing is computed" in caplog.text
    assert report.repeated
    assert (report.job, report.rows) == (table.job_of_key("d/r/t"), 2)


def test_a_run_that_has_not_committed_is_computed(table: Table) -> None:
    with pytest.raises(Computed):
        written()
    assert table.open_jobs() == []


@pytest.mark.parametrize("options", [{"idempotency_key": "another"}, {"onRepeat": "append"}])
def test_a_write_with_a_key_of_its_own_is_another(table: Table, options: dict[str, str]) -> None:
    load(table)
    with pytest.raises(Computed):
        written(options=options)


def test_a_cleared_task_is_computed(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    load(table)
    monkeypatch.setenv("ZERO_RENAME_ON_REPEAT", "replace_own")
    with pytest.raises(Computed):
        written()


#: This process, as an application of Spark's.
MINE = replace(FIRST, application=application_of(Frame.sparkSession))  # pyrefly: ignore[bad-argument-type]


class TestSecondWriteOfAnApplication:
    """Into a Delta table, under the key of the run, which the application's first write had."""

    @pytest.fixture
    def delta(self, table: Table, monkeypatch: pytest.MonkeyPatch) -> DeltaTable:
        monkeypatch.setenv("ZERO_RENAME_LAYOUT", "delta")
        return DeltaTable(table.root.url)

    @pytest.fixture(params=["skip", "replace_own"])
    def policy(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, delta: DeltaTable
    ) -> str:
        monkeypatch.setenv("ZERO_RENAME_ON_REPEAT", request.param)
        return request.param

    @pytest.fixture(params=[True, False], ids=["published", "held_back"])
    def publish(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
        if not request.param:
            monkeypatch.setenv("ZERO_RENAME_PUBLISH", "false")
        return request.param

    @pytest.mark.usefixtures("policy")
    def test_is_refused_and_the_rows_of_the_first_stay(
        self, delta: DeltaTable, publish: bool
    ) -> None:
        loaded(delta, MINE, publish=publish)
        waiting = [it.job for it in delta.unpublished()]
        assert len(waiting) == (not publish)
        with pytest.raises(
            InvalidInputError, match=r"second one was not begun.*give it a key of its own"
        ):
            written()
        assert [it.job for it in delta.unpublished()] == waiting
        assert [it.job for it in delta.open_jobs()] == waiting

    def test_of_another_application_is_another_attempt(
        self, delta: DeltaTable, publish: bool, policy: str
    ) -> None:
        loaded(delta, replace(MINE, application="another"), publish=publish)
        if policy == "replace_own":
            with pytest.raises(Computed):
                written()
        else:
            assert written().repeated

    def test_with_a_key_of_its_own_is_computed(self, delta: DeltaTable, publish: bool) -> None:
        loaded(delta, MINE, publish=publish)
        with pytest.raises(Computed):
            written(options={"idempotencyKey": "another"})


def loaded(table: DeltaTable, owner: Owner, publish: bool) -> None:
    policies: dict[str, Any] = {"idempotency_key": "d/r/t", "owner": owner, "publish": publish}
    with table.job(DATA.schema, partition_by=["day"], **policies) as job:
        job.write(DATA)
