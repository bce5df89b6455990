"""Tasks that fail: repeated ones add their rows once, failed jobs add none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.hadoop_committers import COMMITTERS, Application, Place, numbers
from zero_rename.s3a.hadoop.settings import ABORT_UPLOADS_KEY

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.of_the_jars]
every = pytest.mark.parametrize("committer", COMMITTERS)


@every
def test_a_repeated_task_adds_its_rows_once(
    application: Application, place: Place, committer: str
) -> None:
    # S3A conformance 8, 37, 45
    # Within the test: functions of a module are looked up by name in the worker.
    def fails_at_first(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context is not None and context.partitionId() == 1 and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")

    since = place.now_ms()
    frame = application.frame(0).mapInArrow(fails_at_first, "id bigint, day int")
    with application.with_committer(committer):
        application.write(place, frame)
    assert application.rows(place) == numbers(range(40))
    found = place.verify(committer, None, since)
    assert found.files == 4
    assert place.uploads() == [], "the failed attempt aborted its own"


@pytest.mark.parametrize("aborts", [False, True], ids=["", "abort-pending-uploads"])
@every
def test_a_failed_job_adds_nothing(
    application: Application, place: Place, committer: str, aborts: bool
) -> None:
    # S3A conformance 1, 15, 45, 46, 47, 49, 57
    with application.with_committer(committer, {ABORT_UPLOADS_KEY: str(aborts).lower()}):
        application.write(place, application.frame(0))
        before = place.files()
        bad = application.failing(application.frame(100, rows=60, files=3), 150)
        with pytest.raises(Exception, match="row 150"):
            application.write(place, bad)
    assert place.files() == before
    assert application.rows(place) == numbers(range(40))
    # MinIO lists no uploads by prefix, so S3A finds none to abort.
    finds = aborts and application.store.name != "minio"
    if committer == "magic" and not finds:
        assert place.uploads(), "of the tasks that had committed: left to recovery"
    else:
        assert place.uploads() == []
    left = [key for key in place.objects() if "__magic" in key or "_temporary" in key]
    assert left == []
    assert not place.has("_SUCCESS"), "S3A committers remove the old one"
