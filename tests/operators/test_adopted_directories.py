"""Loads of a Delta table that was adopted from a directory of Hadoop's committers: what its runs
had loaded by those is on record beside the table, and the log knows nothing of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.airflow import Tables, task_context
from support.fake_spark import FakeSpark
from support.s3a_loads import operator, run
from support.s3a_stand_in import APPLICATION
from zero_rename.committer.errors import RefusedError, StoreRefusedError, VerificationError
from zero_rename.committer.upkeep.verify import FindingKind
from zero_rename.maintenance.destinations import destination_at
from zero_rename.maintenance.purging import PurgeOrder
from zero_rename.maintenance.upkeep import look_after
from zero_rename.provider.hooks import ZeroRenameHook
from zero_rename.sensors.success_manifest import SuccessManifestSensor
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.memory_s3

#: The directory is adopted by the Python API while the application is at work.
ADOPTS = (
    """
import os
from zero_rename.tables import DeltaTable
DeltaTable(os.environ["ZERO_RENAME_TABLE"]).adopt(apply=True)
"""
    + APPLICATION
)


@pytest.fixture
def delta(tables: Tables, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> DeltaTable:
    """A day that a run has appended by the magic committer, and a Delta table since."""
    spark.runs(APPLICATION)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("SPARK_CONF_DIR", str(spark.folder))
    run(operator(tables, mode="append"))
    table = ZeroRenameHook().get_delta_table(tables.url())
    table.adopt(apply=True)
    assert table.scan().count() == 1
    return table


def load(tables: Tables, **arguments: Any) -> Any:
    given: dict[str, Any] = {"mode": "append", "committer": "zero_rename", "layout": "delta"}
    return operator(tables, **given | arguments)


def poked(sensor: Any) -> Any:
    return sensor.poke(task_context(sensor))


def test_retry_of_a_run_that_hadoops_committer_has_loaded_reports_that_commit(
    tables: Tables, delta: DeltaTable, spark: FakeSpark
) -> None:
    report = run(load(tables), try_number=2)
    assert (report["committer"], report["repeated"], report["rows"]) == ("magic", True, 1)
    assert len(spark.calls()) == 1
    assert delta.scan().count() == 1


def test_cleared_append_that_hadoops_committer_has_loaded_is_refused(
    tables: Tables, delta: DeltaTable, spark: FakeSpark
) -> None:
    """Its rows would be there twice: nothing tells which of the adopted files are its own."""
    with pytest.raises(RefusedError, match="has committed already"):
        run(load(tables), try_number=2, max_tries=1)
    assert len(spark.calls()) == 1


def test_sensor_finds_what_hadoops_committer_has_loaded(tables: Tables, delta: DeltaTable) -> None:
    given: dict[str, Any] = {"task_id": "wait", "table": tables.url()}
    sensor = SuccessManifestSensor(**given, upstream_task_id="load", partition="day=1")
    report = poked(sensor).xcom_value
    assert report is not None
    assert (report["committer"], report["rows"]) == ("magic", 1)
    by_job = SuccessManifestSensor(**given, job=report["job"])
    assert poked(by_job).is_done
    waits = SuccessManifestSensor(**given, idempotency_key="flights/another/load")
    assert not poked(waits).is_done


def test_sensor_without_the_right_to_read_the_ledger_goes_by_the_log(
    tables: Tables, delta: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: Any) -> Any:
        raise StoreRefusedError("AccessDenied", lacks_right=True)

    monkeypatch.setattr("zero_rename.orchestration.s3a.load.look_at_run", denied)
    sensor = SuccessManifestSensor(task_id="wait", table=tables.url(), upstream_task_id="load")
    assert not poked(sensor).is_done


@pytest.fixture
def adopted_meanwhile(
    tables: Tables, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> DeltaTable:
    """A day that one run has loaded, and another run whose job commits after the adoption."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("SPARK_CONF_DIR", str(spark.folder))
    spark.runs(APPLICATION)
    run(operator(tables, mode="append"), run_id="earlier")
    spark.runs(ADOPTS)
    with pytest.raises(VerificationError, match="whose log does not name 1 file of the job"):
        run(operator(tables, mode="append"))
    return ZeroRenameHook().get_delta_table(tables.url())


def test_load_that_was_at_work_during_the_adoption_does_not_count_as_committed(
    tables: Tables, adopted_meanwhile: DeltaTable, spark: FakeSpark
) -> None:
    """No reader of the table sees its rows: the log does not name its file."""
    assert adopted_meanwhile.scan().count() == 1
    sensor = SuccessManifestSensor(task_id="wait", table=tables.url(), upstream_task_id="load")
    assert not poked(sensor).is_done
    with pytest.raises(VerificationError, match="whose log does not name 1 file of the job"):
        run(load(tables), try_number=2)
    assert len(spark.calls()) == 2


def test_verification_and_maintenance_name_files_that_no_entry_of_the_log_names(
    tables: Tables, adopted_meanwhile: DeltaTable
) -> None:
    (found,) = adopted_meanwhile.verify()
    assert (found.kind, found.partition) == (FindingKind.UNNAMED, "day=1")
    assert "no entry of the log names it" in found.detail
    place = tables.table().run(destination_at(adopted_meanwhile.root))
    done = look_after(tables.table(), place, PurgeOrder())
    (told,) = done.person
    assert found.key in told
    # What a failed job of Spark leaves has no marker.
    key = f"{adopted_meanwhile.root.prefix}/day=1/part-1.parquet"
    tables.bucket.client.put_object(Bucket=tables.bucket.name, Key=key, Body=b"left")
    done = look_after(tables.table(), place, PurgeOrder())
    assert (len(done.person), any(key in it for it in done.notes)) == (1, True)


#: A job of this package makes a table of the directory while the application is at work.
TAKES_OVER = (
    """
import os
import pyarrow as pa
from zero_rename.committer import Table
rows = pa.table({"flight": ["new"], "day": [1]})
with Table(os.environ["ZERO_RENAME_TABLE"]).job(rows.schema, partition_by=["day"]) as job:
    job.write(rows)
"""
    + APPLICATION
)


def test_load_that_was_at_work_as_its_partition_got_a_head_does_not_count_as_committed(
    tables: Tables, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reader through the heads sees its rows."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("SPARK_CONF_DIR", str(spark.folder))
    spark.runs(TAKES_OVER)
    with pytest.raises(VerificationError, match="whose heads do not name 1 file of the job"):
        run(operator(tables, mode="append"))
    assert tables.table().scan().count() == 1
    sensor = SuccessManifestSensor(task_id="wait", table=tables.url(), upstream_task_id="load")
    assert not poked(sensor).is_done
