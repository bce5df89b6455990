"""Programs with a Spark of their own: how the data source is found, and shipped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from support.spark import environment, run_program, settings
from support.waiting import STUCK
from zero_rename.committer import Table
from zero_rename.orchestration.submit.package_file import build_zip

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: Where the packages are installed.
_SITE = Path(pyspark.__file__).parents[1]

#: Writes a table and reads a part of it.
ROUND = """
url = sys.argv[1]
frame = spark.sql("select 1 n, 'x' p union all select 2, 'y'")
frame.write.format("zero_rename").mode("append").option("partitionBy", "p").save(url)
# Spark evaluates the filter.
found = spark.read.format("zero_rename").load(url).where("p = 'y'").collect()
print(json.dumps([list(row) for row in found]))
"""
DISCOVERED = "import json, sys\nspark = session()" + ROUND
SHIPPED = (
    """
import json, sys
from pyspark.sql import SparkSession
from zero_rename.spark import register
spark = SparkSession.builder.getOrCreate()
register(spark)
import zero_rename
assert ".zip" in zero_rename.__file__, zero_rename.__file__
"""
    + ROUND
)


def answer(process):
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout.strip().splitlines()[-1])


def test_it_is_found_where_it_is_installed(s3_bucket, s3_server, tmp_path):
    """In a fresh process, started by the path of the virtual environment's Python."""
    url = f"s3://{s3_bucket.name}/t"
    variables = environment(s3_server)
    found = run_program(DISCOVERED, variables, url, folder=tmp_path)
    assert answer(found) == [[2, "y"]]
    assert Table(url).to_arrow().num_rows == 2


def test_it_is_shipped_as_a_zip(s3_bucket, s3_server, tmp_path):
    """To a Python that lacks the package: by ``spark-submit --py-files`` and ``register()``."""
    bare = tmp_path / "site"
    bare.mkdir()
    for entry in _SITE.iterdir():
        if "zero_rename" not in entry.name and entry.suffix != ".pth":
            (bare / entry.name).symlink_to(entry)
    archive = build_zip(tmp_path)
    python = os.path.realpath(sys.executable)
    variables = environment(s3_server) | {
        "PYSPARK_PYTHON": python,
        "PYTHONPATH": str(bare),
        "PYTHONNOUSERSITE": "1",
        "SPARK_HOME": str(bare / "pyspark"),
    }
    lacks = subprocess.run(
        [python, "-c", "import pyspark, zero_rename"], env=variables, capture_output=True, text=True
    )
    assert "No module named 'zero_rename'" in lacks.stderr

    program = tmp_path / "program.py"
    program.write_text(SHIPPED)
    options = [f"--conf={name}={value}" for name, value in settings(tmp_path).items()]
    url = f"s3://{s3_bucket.name}/t"
    command = [str(bare / "pyspark/bin/spark-submit"), "--master", "local[2]", *options]
    submitted = subprocess.run(
        [*command, "--py-files", str(archive), str(program), url],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=STUCK,
    )
    assert answer(submitted) == [[2, "y"]]
    assert Table(url).to_arrow().num_rows == 2
