"""A cluster of two machines in small: the executor is a process with a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.hadoop_committers import Application, Place, environment, static_settings
from tools.fetch_s3a_jars import cached_jars
from zero_rename.committer.errors import VerificationError
from zero_rename.s3a.hadoop.settings import STAGING_KEY, Committer, S3ASettings
from zero_rename.spark.startup.installation import spark_home

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.of_the_jars]
shows = pytest.mark.shows

_PROGRAM = """
import json, os
from pyspark.sql import SparkSession

given = json.loads(os.environ["GIVEN"])
builder = SparkSession.builder.master("local-cluster[1,1,1024]")
for name, value in given["static"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for url, settings in given["writes"]:
    for key, value in settings.items():
        spark.conf.set(key.removeprefix("spark.hadoop."), value)
    spark.range(0, 40, 1, 2).write.mode("append").parquet(url)
print("ENDED WELL")
"""


def own_home(folder: Path) -> Path:
    """Spark's home in links: a cluster makes its folders there."""
    home = folder / "spark"
    home.mkdir()
    for entry in spark_home().iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


@shows("staging-not-shared", "staging-unknown")
def test_lists_of_uploads_stay_with_the_executor(application: Application, tmp_path: Path) -> None:
    places: list[Place] = [application.place(application.new_bucket()) for _ in range(2)]
    staged, magic = places
    static = static_settings(application.store, cached_jars() or (), tmp_path)
    # Relative, and there is no file system but the machines' own: as Hadoop has it by default.
    del static[f"spark.hadoop.{STAGING_KEY}"]
    static["spark.executor.extraClassPath"] = static["spark.driver.extraClassPath"]
    static["spark.executor.memory"] = "1g"
    writes = [
        (staged.url, S3ASettings(Committer.DIRECTORY).spark_conf()),
        (magic.url, S3ASettings(Committer.MAGIC).spark_conf()),
    ]
    answer = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={
            **environment(application.store),
            "GIVEN": json.dumps({"static": static, "writes": writes}),
            "SPARK_HOME": str(own_home(tmp_path)),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
    )
    assert "ENDED WELL" in answer.stdout, answer.stderr
    assert staged.files() == [], "40 rows are lost, and the job has ended well"
    assert staged.marker()["filenames"] == []
    assert len(staged.uploads()) == 2
    with pytest.raises(VerificationError):
        staged.verify("directory", None, 0)
    assert len(magic.files()) == 2
    assert magic.verify("magic", None, 0).files == 2
