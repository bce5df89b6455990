"""What a write has read: another job's commit while Spark shuffles is not written over."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest

from support.spark_tables import numbers, put, read, write
from zero_rename.committer import CommitConflictError, Table
from zero_rename.spark import load, save

pytestmark = pytest.mark.spark


@pytest.fixture
def frame(spark):
    return spark.createDataFrame([(1, "x"), (2, "x"), (3, "y")], "n long, p string")


append = partial(put, schema=pa.schema([("n", pa.int64()), ("p", pa.string())]))


def test_a_commit_during_the_shuffle_is_a_conflict(spark, url):
    append(url, (1, "x"))

    def lands(batches):
        """Stage one: reads all rows; then another job commits."""
        import pyarrow as pa

        from zero_rename import Table

        yield from list(batches)
        with Table(url).job() as job:
            job.write(pa.table({"n": [100], "p": ["x"]}))

    old = read(spark, url)
    new = old.mapInArrow(lands, old.schema).repartition(2, "n").selectExpr("n + 1 n", "p")
    with pytest.raises(Exception, match="CommitConflictError") as caught:
        write(new, url, "overwrite")
    assert "since this job read the table: p=x" in str(caught.value)
    assert "Load the table anew" in str(caught.value)
    assert numbers(url) == [1, 100]
    write(old.selectExpr("n + 1 n", "p"), url, "overwrite", base="now")
    assert numbers(url) == [2]


def test_what_was_read_first_counts_until_a_write_has_ended(spark, url, frame):
    write(frame, url, partitionBy="p")
    early = read(spark, url)
    assert early.count() == 3
    append(url, (4, "x"))
    late = read(spark, url)
    assert late.count() == 4
    with pytest.raises(Exception, match="CommitConflictError"):
        write(early.union(late), url, "overwrite")
    write(read(spark, url).where("p = 'y'"), url, "overwrite")
    append(url, (5, "x"))  # after the application's last write, before it loads again
    write(read(spark, url).selectExpr("n * 10 n", "p"), url, "overwrite")
    assert numbers(url) == [10, 20, 30, 40, 50]


def test_own_commits_are_no_conflicts(spark, url, frame):
    write(frame, url, partitionBy="p")
    old = read(spark, url).cache()
    assert old.count() == 3
    write(frame.where("p = 'x'"), url)  # what was read is still what another has left there
    write(old.where("p = 'x'"), url, "overwrite")
    write(old.where("p = 'x'"), url, "overwrite")
    assert numbers(url) == [1, 2, 3]
    old.unpersist()


def test_a_base_that_is_given(spark, url, frame):
    save(frame, url, partition_by=["p"])
    state = Table(url).snapshot()
    append(url, (4, "z"))
    with pytest.raises(CommitConflictError, match="p=z"):
        save(frame.selectExpr("n", "'z' p"), url, mode="overwrite", base=state)
    save(frame, url, mode="overwrite", base=state)
    assert numbers(url) == [1, 2, 3, 4]


@pytest.mark.usefixtures("nothing_loaded")
def test_what_a_run_s_job_was_made_of_is_told(spark, url, monkeypatch):
    """By both readers."""
    append(url, (1, "x"), (2, "y"))
    append(url, (3, "x"))
    for name, value in (("IDEMPOTENCY_KEY", "d/r/t"), ("TASK", "t"), ("TABLE", f"{url}_2")):
        monkeypatch.setenv(f"ZERO_RENAME_{name}", value)

    def told(job):
        found = Table(f"{url}_2").inputs_of(job).tables
        return {it.table: [(p.partition, p.version) for p in it.partitions] for it in found}

    both = {url: [("p=x", 2), ("p=y", 1)]}
    first = save(load(spark, url), f"{url}_2", partition_by=["p"])
    assert first is not None
    assert told(first.job).items() >= both.items()
    append(url, (4, "y"))
    frame = read(spark, url).where("p = 'y'")
    second = save(frame, f"{url}_2", mode="append", options={"idempotency_key": "d/r/t/2"})
    assert second is not None
    # What is read again once a job has ended counts as it is then.
    assert told(second.job)[url] == [("p=x", 2), ("p=y", 2)]
