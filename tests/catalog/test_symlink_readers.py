"""Engines follow symlink manifests to files below an underscore: a table that is read by heads.

The bucket is mirrored to a folder, so that Spark needs no S3A: what is asked is whether an engine
drops what Hadoop calls hidden, and that it does by names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from support.spark import environment, run_program
from zero_rename import Table

pytestmark = pytest.mark.memory_s3

SCHEMA = pa.schema([("delay", pa.float64()), ("day", pa.int32())])


def load(table: Table, *delays: float, **policy: Any) -> None:
    rows = pa.table({"delay": delays, "day": [1] * len(delays)}, schema=SCHEMA)
    with table.job(SCHEMA, **policy) as job:
        job.write(rows)


@pytest.fixture(params=["heads", "listing"])
def mirror(request: pytest.FixtureRequest, s3_bucket: Any, tmp_path: Path) -> Path:
    """A folder that holds what the bucket does: a table that was replaced, and added to."""
    table = Table(f"s3://{s3_bucket.name}/flights")
    load(table, 1.0, readers=request.param)
    table.keep_symlinks()
    load(table, 10.0, mode="overwrite", replace_table=True)
    load(table, 20.0, 30.0)
    for key in s3_bucket.keys():  # noqa: SIM118 — no dict
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        body = s3_bucket.read(key)
        if path.name == "manifest":
            body = body.replace(f"s3://{s3_bucket.name}/".encode(), f"file:{tmp_path}/".encode())
        path.write_bytes(body)
    hidden = {"/_zero_rename/data/" in file for file in named(tmp_path)}
    assert hidden == {request.param == "heads"}
    return tmp_path


def named(mirror: Path) -> list[str]:
    """The files that the list names."""
    text = (mirror / "flights" / "_symlink_format_manifest" / "manifest").read_text()
    return sorted(line.removeprefix("file:") for line in text.split())


def test_duckdb_reads_the_files_of_a_list(mirror: Path) -> None:
    query = "SELECT delay FROM read_parquet(?) ORDER BY 1"
    assert duckdb.execute(query, [named(mirror)]).fetchall() == [(10.0,), (20.0,), (30.0,)]


PROGRAM = """
import json, sys
lists = f"file:{sys.argv[1]}/flights/_symlink_format_manifest"
spark = session()
spark.sql(
    "CREATE EXTERNAL TABLE flights (line STRING) "
    "STORED AS INPUTFORMAT 'org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat' "
    "OUTPUTFORMAT 'org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat' "
    f"LOCATION '{lists}'"
)
files = spark.sql("SELECT count(*) FROM flights WHERE line LIKE 'PAR1%'").first()[0]
print("FOUND", json.dumps(files))
"""


def test_hives_input_format_opens_the_files_of_a_list(
    mirror: Path, s3_env: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of Spark's Hive and Derby. It reads text, so that lines are no rows: what begins a Parquet
    file begins a line, and shows which files it opens. Spark finds nothing by it in a table with
    partitions, wherever the files lie."""
    folder = tmp_path_factory.mktemp("hive")
    # As enableHiveSupport() has it; Derby's metastore lies in the program's folder.
    hive = {"PYSPARK_SUBMIT_ARGS": "--conf spark.sql.catalogImplementation=hive pyspark-shell"}
    variables = environment(s3_env) | hive
    ended = run_program(PROGRAM, variables, str(mirror), folder=folder)
    assert "FOUND" in ended.stdout, ended.stderr[-3000:]
    assert json.loads(ended.stdout.partition("FOUND")[2]) == len(named(mirror)) == 2
