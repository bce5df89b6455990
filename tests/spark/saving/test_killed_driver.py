"""A driver that is killed in the middle of ``save()``, and what comes after it. Runs on whatever
Spark there is, as ``test_save.py``."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from support.second_driver import start_driver
from support.waiting import STUCK, until
from zero_rename import Table
from zero_rename.spark import save

pytestmark = pytest.mark.spark
OLD, NEW = list(range(3)), list(range(100, 140))
_PROGRAM = """
import os, signal
from pathlib import Path
from zero_rename.committer.commit import commit
from zero_rename.spark import save

url, begun, go, phase = sys.argv[1:]

def slow(batches):
    import time

    yield from batches
    Path(begun).touch()
    while not Path(go).exists():
        time.sleep(0.05)

def dies(*_):
    os.kill(os.getpid(), signal.SIGKILL)

rows = spark.range(100, 140, 1, 2)
if phase == "applying":
    commit.finish_own = dies
else:
    rows = rows.mapInArrow(slow, "id long")
save(rows, url, options={"idempotency_key": "a run"})
"""


@pytest.fixture
def url(spark: Any, s3_bucket: Any) -> str:
    url = f"s3://{s3_bucket.name}/lake/table"
    save(spark.range(3), url)
    return url


def kill_driver(spark: Any, url: str, folder: Path, phase: str) -> None:
    """Let a driver begin to save :data:`NEW`, and kill it: while its tasks run, which go on without
    it, or right after the decision."""
    begun, go = folder / "begun", folder / "go"
    driver = start_driver(spark, _PROGRAM, url, str(begun), str(go), phase, folder=folder)
    try:
        if phase == "writing":
            until("the driver's task begins", lambda: begun.exists() or driver.poll() is not None)
            assert begun.exists(), (folder / "driver.log").read_text()
            driver.kill()
        assert driver.wait(STUCK) == -signal.SIGKILL, (folder / "driver.log").read_text()
    finally:
        driver.kill()
        driver.wait()
        go.touch()
    tracker = spark.sparkContext.statusTracker()
    until("the driver's tasks end", lambda: not tracker.getActiveJobsIds())


def ids(url: str) -> list[int]:
    return sorted(Table(url).to_arrow()["id"].to_pylist())


def retry(spark: Any, url: str) -> Any:
    return save(spark.range(100, 140, 1, 2), url, options={"idempotency_key": "a run"})


def test_while_its_tasks_write(spark: Any, s3_bucket: Any, url: str, tmp_path: Path) -> None:
    kill_driver(spark, url, tmp_path, "writing")
    assert len(s3_bucket.uploads()) == 2  # The tasks have ended, and nobody has heard of it.
    assert ids(url) == OLD
    (job,) = Table(url).open_jobs()
    assert [it.outcome for it in Table(url).recover(patience=0.0)] == ["aborted"]
    assert s3_bucket.uploads() == []
    report = retry(spark, url)
    assert (report.repeated, report.rows) == (False, 40)
    assert report.job != job.job
    assert ids(url) == [*OLD, *NEW]


def test_while_its_files_become_visible(
    spark: Any, s3_bucket: Any, url: str, tmp_path: Path
) -> None:
    """The retry finishes what is committed, and repeats nothing."""
    kill_driver(spark, url, tmp_path, "applying")
    (job,) = Table(url).open_jobs()
    assert len(s3_bucket.uploads()) == 2
    report = retry(spark, url)
    assert (report.repeated, report.job, report.rows) == (True, job.job, 40)
    assert ids(url) == [*OLD, *NEW]
    assert s3_bucket.uploads() == []
    assert Table(url).open_jobs() == []
