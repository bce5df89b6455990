"""Jars that are missing, each time in a JVM of its own, and settings that do not reach it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.hadoop_committers import Application, Place, environment, static_settings
from tools.fetch_s3a_jars import cached_jars
from zero_rename.s3a.hadoop.settings import Committer, S3ASettings

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.of_the_jars]
shows = pytest.mark.shows

_PROGRAM = """
import json, os, sys
from pyspark.sql import SparkSession

given = json.loads(os.environ["GIVEN"])
builder = SparkSession.builder.master("local[1]")
for name, value in given["static"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()


def tried(action):
    try:
        return action() or "well"
    except Exception as error:
        return str(getattr(error, "java_exception", None) or error)[:3000]


def write(settings, url):
    for key, value in settings.items():
        spark.conf.set(key.removeprefix("spark.hadoop."), value)
    spark.range(10).write.mode("append").parquet(url)


def dropped(key):
    return spark.sparkContext.getConf().get(key, "absent")


url = given["url"]
print("ANSWER" + json.dumps({
    "dropped": dropped("fs.s3a.committer.threads"),
    "kept": dropped("spark.hadoop.fs.s3a.committer.threads"),
    "unconfigured": tried(lambda: write({}, url + "/unconfigured")),
    "classic stream": tried(lambda: write({"fs.s3a.input.stream.type": "classic"}, given["other"])),
    "configured": tried(lambda: write(given["settings"], url + "/configured")),
}))
"""


def run(application: Application, place: Place, folder: Path, without: str) -> dict:
    """What a JVM without the jar of that name answers."""
    jars = tuple(jar for jar in cached_jars() or () if not jar.name.startswith(without))
    given = {
        "static": static_settings(application.store, jars, folder),
        "settings": S3ASettings(Committer.MAGIC).spark_conf(),
        "url": place.url,
        # Where the file system is not made yet.
        "other": application.place(application.new_bucket()).url,
    }
    dropped = "--conf fs.s3a.committer.threads=3 --conf spark.hadoop.fs.s3a.committer.threads=4"
    variables = {
        **environment(application.store),
        "GIVEN": json.dumps(given),
        "PYSPARK_SUBMIT_ARGS": f"{dropped} pyspark-shell",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    answer = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
        cwd=folder,
    )
    lines = [line for line in answer.stdout.splitlines() if line.startswith("ANSWER")]
    assert lines, answer.stdout + answer.stderr
    return json.loads(lines[0].removeprefix("ANSWER"))


@shows("classes-missing")
def test_without_the_binding_classes(
    application: Application, place: Place, tmp_path: Path
) -> None:
    found = run(application, place, tmp_path, "spark-hadoop-cloud")
    # Spark's own choice of magic does not happen, and nothing says so: it renames.
    assert found["unconfigured"] == "well"
    assert place.body("unconfigured/_SUCCESS") == b""
    assert "BindingParquetOutputCommitter' in the" in found["configured"]
    assert "Class must be loadable" in found["configured"]
    assert (found["dropped"], found["kept"]) == ("absent", "4")


@shows("classes-missing")
def test_without_the_sdk(application: Application, place: Place, tmp_path: Path) -> None:
    found = run(application, place, tmp_path, "bundle")
    assert "software/amazon/awssdk" in found["unconfigured"].replace(".", "/")
    assert place.objects() == []
