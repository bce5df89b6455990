"""``stream()``: a micro-batch that is run again is committed once."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.spark import environment, run_program
from support.spark_tables import data_keys, numbers, open_records
from zero_rename.committer import Committed, InvalidInputError, Owner, Table
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.job_spec import Mode, TableLayout
from zero_rename.committer.format.layout import TableRoot
from zero_rename.spark import save, stream, stream_sink
from zero_rename.tables import DeltaTable

pytestmark = pytest.mark.spark
SCHEMA = "n long, p string"
AVAILABLE = {"availableNow": True}

#: Streams a folder into a table, and dies when the batch of that number is committed.
KILLED = """
import os
import signal
import sys

from zero_rename.spark import stream, stream_sink

source, table, checkpoint, last = sys.argv[1:]
spark = session()
save = stream_sink.save

def saved_and_killed(batch, *arguments, **given):
    save(batch, *arguments, **given)
    if given["options"]["idempotencyKey"].endswith(f"-{last}"):
        os.kill(spark._jvm.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

stream_sink.save = saved_and_killed
frame = spark.readStream.schema("n long, p string").option("maxFilesPerTrigger", "1").json(source)
stream(frame, table, checkpoint=checkpoint, partition_by=["p"]).awaitTermination()
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three files of a row each, in the order of their times."""
    folder = tmp_path / "source"
    folder.mkdir()
    for number in (1, 2, 3):
        put(folder, number)
    return folder


def put(folder: Path, number: int) -> None:
    file = folder / f"{number}.json"
    file.write_text(json.dumps({"n": number, "p": f"p{number % 2}"}), "utf-8")
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


@pytest.fixture
def url(s3_bucket: Any) -> str:
    return f"s3://{s3_bucket.name}/events"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


def frame(spark: Any, source: Path) -> Any:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").json(str(source))


def run(spark: Any, source: Path, url: str, checkpoint: str, **given: Any) -> None:
    """What there is, to its end."""
    query = stream(
        frame(spark, source),
        url,
        checkpoint=checkpoint,
        partition_by=["p"],
        trigger=AVAILABLE,
        **given,
    )
    query.awaitTermination()


def done(checkpoint: str) -> list[int]:
    """The batches that Spark has written down as done."""
    names = os.listdir(Path(checkpoint, "commits"))
    return sorted(int(name) for name in names if name.isdigit())


def test_a_driver_killed_between_the_commit_and_spark_s_own_log(
    spark: Any,
    s3_server: Any,
    s3_bucket: Any,
    source: Path,
    url: str,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    died = run_program(
        KILLED, environment(s3_server), str(source), url, checkpoint, "1", folder=folder
    )
    assert died.returncode == -9, died.stderr
    assert (done(checkpoint), numbers(url)) == ([0], [1, 2])
    run(spark, source, url, checkpoint)
    assert (done(checkpoint), numbers(url)) == ([0, 1, 2], [1, 2, 3])
    assert len(data_keys(s3_bucket)) == 3
    assert open_records(s3_bucket, "events") == []


def test_a_batch_that_failed_is_written_at_the_next_start(
    spark: Any, source: Path, url: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any, **given: Any) -> None:
        raise RuntimeError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(stream_sink, "save", fails)
        with pytest.raises(Exception, match="the disk is full"):
            run(spark, source, url, checkpoint)
    assert not Table(url).exists()
    run(spark, source, url, checkpoint)
    put(source, 4)
    run(spark, source, url, checkpoint)
    assert numbers(url) == [1, 2, 3, 4]


@pytest.mark.parametrize("given", [{}, {"mode": "merge", "merge_on": ["n"]}])
def test_stream_into_a_delta_table_commits_each_batch_once(
    spark: Any, source: Path, url: str, checkpoint: str, given: dict[str, Any]
) -> None:
    run(spark, source, url, checkpoint, layout="delta", **given)
    # The checkpoint forgets the last batch, which runs again.
    for name in ("2", ".2.crc"):
        Path(checkpoint, "commits", name).unlink()
    put(source, 4)
    run(spark, source, url, checkpoint, layout="delta", **given)
    table = DeltaTable(url)
    assert sorted(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == [1, 2, 3, 4]
    assert len(table.history()) == 4
    assert table.open_jobs() == []


def test_last_planned_batch_is_found_in_the_checkpoint(
    spark: Any, source: Path, url: str, tmp_path: Path
) -> None:
    checkpoint = str(tmp_path / "checkpoint[1]")
    assert stream_sink.last_planned(spark, checkpoint) == -1
    run(spark, source, url, checkpoint)
    assert stream_sink.last_planned(spark, checkpoint) == 2


def newer_run_loads(url: str) -> None:
    rows = pa.table({"n": [7], "p": ["p1"]})
    with Table(url).job(rows.schema, mode="replace", partition_by=["p"], run_rank=9) as job:
        job.write(rows)


def test_stream_leaves_out_what_newer_runs_have_loaded_and_goes_on(
    spark: Any, source: Path, url: str, checkpoint: str
) -> None:
    """Of three batches, the first and the last one are of a partition that a newer run has."""
    newer_run_loads(url)
    skips = {"onConflict": "newest_run", "onSuperseded": "skip", "runRank": "1"}
    run(spark, source, url, checkpoint, options=skips)
    assert (done(checkpoint), numbers(url)) == ([0, 1, 2], [2, 7])
    run(spark, source, url, checkpoint, options=skips)
    assert numbers(url) == [2, 7]


def test_stream_that_skips_nothing_ends_where_a_newer_run_has_loaded(
    spark: Any, source: Path, url: str, checkpoint: str
) -> None:
    newer_run_loads(url)
    with pytest.raises(Exception, match="Newer runs have loaded p=p1"):
        run(spark, source, url, checkpoint, options={"onConflict": "newest_run", "runRank": "1"})
    assert numbers(url) == [7]


def test_save_in_foreach_batch_leaves_out_what_newer_runs_have_loaded(
    spark: Any, source: Path, url: str, checkpoint: str
) -> None:
    newer_run_loads(url)
    left: list[Any] = []

    def write(batch: Any, number: int) -> None:
        options = {
            **{"onConflict": "newest_run", "onSuperseded": "skip", "runRank": "1"},
            "idempotencyKey": f"batch {number}",
        }
        done = save(batch, url, partition_by=["p"], options=options)
        assert isinstance(done, Committed)
        left.append((dict(done.superseded).keys(), done.left_out))

    rows = spark.readStream.schema(SCHEMA).json(str(source))
    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    query.trigger(**AVAILABLE).start().awaitTermination()
    assert left == [({"p=p1"}, 2)]
    assert numbers(url) == [2, 7]


def test_operator_that_asks_for_another_committer_is_refused_before_the_query_starts(
    spark: Any, source: Path, url: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZERO_RENAME_TABLE", url)
    monkeypatch.setenv("ZERO_RENAME_COMMITTER", "magic")
    with pytest.raises(InvalidInputError, match="by the committer zero_rename, and magic is asked"):
        run(spark, source, url, checkpoint)
    assert not Path(checkpoint).exists()


def test_query_that_ends_is_refused_where_a_task_waits_for_one_job_of_its_run(
    spark: Any, source: Path, url: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZERO_RENAME_TABLE", url)
    monkeypatch.setenv("ZERO_RENAME_IDEMPOTENCY_KEY", "dag/run/task")
    with pytest.raises(InvalidInputError, match=r"waits for one job of its run.*Nothing was start"):
        run(spark, source, url, checkpoint)
    assert not Path(checkpoint).exists()
    run(spark, source, f"{url}-2", checkpoint)  # A table that the task says nothing of.
    assert numbers(f"{url}-2") == [1, 2, 3]


def test_stream_that_overwrites_partitions_which_its_task_names_is_refused(
    spark: Any, source: Path, url: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch would empty what the batches before it have written."""
    monkeypatch.setenv("ZERO_RENAME_TABLE", url)
    monkeypatch.setenv("ZERO_RENAME_MODE", "replace")
    monkeypatch.setenv("ZERO_RENAME_PARTITIONS", "p=p0;p=p1")
    with pytest.raises(InvalidInputError, match=r"names p=p0, p=p1, to be replaced: each batch"):
        run(spark, source, url, checkpoint, mode="overwrite")
    assert not Path(checkpoint).exists()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ZERO_RENAME_MODE", "merge", "with mode 'append', and merge is asked for"),
        ("ZERO_RENAME_LAYOUT", "delta", "with layout=directory, and the task"),
    ],
)
def test_stream_that_contradicts_its_task_is_refused_before_the_query_starts(
    spark: Any,
    source: Path,
    url: str,
    checkpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    message: str,
) -> None:
    monkeypatch.setenv("ZERO_RENAME_TABLE", url)
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInputError, match=message):
        run(spark, source, url, checkpoint, layout="directory")
    assert not Path(checkpoint).exists()


def test_a_new_checkpoint_is_a_new_query(
    spark: Any, source: Path, url: str, checkpoint: str
) -> None:
    """Its batches, 0 and so on, are not taken for those that are done."""
    run(spark, source, url, checkpoint)
    run(spark, source, url, f"{checkpoint}-2", mode="overwrite")
    assert numbers(url) == [2, 3]  # of each partition, its last batch


def test_checkpoint_whose_name_fits_that_of_another_query_is_its_own(
    spark: Any, source: Path, url: str, tmp_path: Path
) -> None:
    """Spark takes brackets in a path that it reads for a pattern, which fits the other one."""
    run(spark, source, url, str(tmp_path / "checkpoint1"))
    run(spark, source, url, str(tmp_path / "checkpoint[1]"))
    assert numbers(url) == [1, 1, 2, 2, 3, 3]


def test_batches_on_a_connect_server_have_what_the_clients_task_says(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not what the server's own environment says, which save() does not go by, either. The
    owner's series has the batch's plan, and still says when the task was cleared."""
    server = {"ZERO_RENAME_ON_CONFLICT": "last_wins", "ZERO_RENAME_HANDOFF": "of another one"}
    monkeypatch.setattr(os, "environ", {**os.environ, **server})
    seen = []

    def saved(*_: Any, options: dict[str, str], **__: Any) -> None:
        owner = Owner(series=options["series"])
        seen.append((Handoff.decode(os.environ), owner.run_began, owner.cleared))

    monkeypatch.setattr(stream_sink, "query_id", lambda *_: "q")
    monkeypatch.setattr(stream_sink, "plan_of", lambda *_: "stream-plan-0")
    monkeypatch.setattr(stream_sink, "save", saved)
    told = Handoff(table=TableRoot.parse(url), layout=TableLayout.DELTA)
    for series in ("2026-01-01 1 2", "x", None):
        batches = stream_sink.MicroBatches(
            url, "checkpoint", (), Mode.APPEND, told=told.encode(), series=series
        )
        pickle.loads(pickle.dumps(batches))(object(), 0)
    assert seen == [
        (told, "2026-01-01", "2"),
        (told, "x", "x"),
        (told, "stream-plan-0", "stream-plan-0"),
    ]


@pytest.mark.parametrize("layout", ["directory", "delta"])
def test_batch_of_a_checkpoint_that_was_put_back_is_refused(
    spark: Any, source: Path, url: str, checkpoint: str, layout: str
) -> None:
    """Its rows are others than those that the batch of that number had."""
    run(spark, source, url, checkpoint, layout=layout)
    for folder in ("offsets", "commits"):
        shutil.rmtree(Path(checkpoint, folder))
    put(source, 4)  # All that the source's own log does not have is the first batch now.
    with pytest.raises(Exception, match=r"runs batch 0 .* holds that batch and batch 1 \(job zr1-"):
        run(spark, source, url, checkpoint, layout=layout)


@pytest.mark.parametrize(
    ("layout", "given"),
    [("directory", {}), ("delta", {}), ("delta", {"mode": "merge", "merge_on": ["n"]})],
)
def test_last_batch_that_was_planned_anew_is_refused(
    spark: Any, tmp_path: Path, url: str, checkpoint: str, layout: str, given: dict[str, Any]
) -> None:
    """The checkpoint was put back by one batch, so no later one shows it."""
    folder = tmp_path / "source"
    folder.mkdir()

    def run_all() -> None:
        rows = spark.readStream.schema(SCHEMA).json(str(folder))
        stream(
            rows, url, checkpoint=checkpoint, layout=layout, trigger=AVAILABLE, **given
        ).awaitTermination()

    for number in (1, 2):
        put(folder, number)
        run_all()
    for place in ("offsets", "commits", "sources/0"):
        for name in ("1", ".1.crc"):
            Path(checkpoint, place, name).unlink()
    put(folder, 3)
    with pytest.raises(Exception, match=r"runs batch 1 .* with other offsets than .*job zr1-"):
        run_all()


def test_few_files_of_each_batch(spark: Any, source: Path, url: str, checkpoint: str) -> None:
    """Rows of a partition are brought together, also where Spark does not adapt its plans."""
    rows = spark.readStream.schema(SCHEMA).json(str(source))
    rows = rows.selectExpr("explode(sequence(1L, 20)) n", "p").repartition(3)
    files = {}
    for way in ("none", "partition"):
        place = f"{checkpoint}-{way}"
        query = stream(
            rows,
            f"{url}-{way}",
            checkpoint=place,
            partition_by=["p"],
            trigger=AVAILABLE,
            options={"distribute": way},
        )
        query.awaitTermination()
        files[way] = len(Table(f"{url}-{way}").files())
    assert files == {"none": 3 * 2, "partition": 2}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": {"idempotency_key": "x"}}, "idempotency_key is given, which each batch has"),
        ({"options": {"on_repeat": "append"}}, "on_repeat is given"),
        ({"mode": "upsert"}, "mode='upsert' is unknown"),
        ({"options": {"rowsPerFle": "9"}}, "Is rowsPerFile meant"),
        ({"options": {"onSuperseded": "skip"}}, "on_conflict=fail lets none; nothing was started"),
        (
            {"mode": "merge", "merge_on": ["n"], "options": {"onConflict": "newest_run"}},
            "onConflict=newest_run says nothing to a change of rows",
        ),
        (
            {"mode": "merge", "merge_on": ["n"], "options": {"distribute": "none"}},
            "distribute=none says nothing to a change of rows",
        ),
    ],
)
def test_what_cannot_be_right(
    spark: Any, source: Path, url: str, checkpoint: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        run(spark, source, url, checkpoint, **given)
    assert not Path(checkpoint).exists()


def test_a_frame_of_a_batch(spark: Any, url: str, checkpoint: str) -> None:
    with pytest.raises(InvalidInputError, match="none of a stream"):
        stream(spark.range(3), url, checkpoint=checkpoint)
