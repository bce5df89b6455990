"""Make the class archive for JVMs with Hadoop's S3A jars, in the user's cache folder.

``python tools/s3a_class_archive.py`` runs a Spark application that writes to moto by magic and by
directory, and lets its JVM write the classes it loaded: about 210 MB, in a minute, once per Java,
Spark and jars. Such a JVM's start with two writes then takes
14 s of CPU instead of 23; where there is no archive it is only slower.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# As a script it finds its neighbours, and the tests' servers, by the checkout's folder.
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from tools import fetch_s3a_jars  # noqa: E402
from zero_rename.spark.startup import class_archive  # noqa: E402
from zero_rename.spark.startup.launch import SMALL_JOB_FLAGS, archive_flags, archive_path  # noqa: E402

#: Of a cluster that chose its committer before Spark 4.1 chose one.
_CORE_SITE = """<configuration><property>
<name>fs.s3a.committer.name</name><value>directory</value>
</property></configuration>"""
_TRAINING = """
import json, os
from pyspark.sql import SparkSession

given = json.loads(os.environ["GIVEN"])
builder = SparkSession.builder.master("local[2]")
for name, value in given["static"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for committer, settings in given["committers"].items():
    for key, value in settings.items():
        spark.conf.set(key.removeprefix("spark.hadoop."), value)
    url = given["url"] + committer
    frame = spark.range(0, 40, 1, 2).selectExpr("id", "cast(id % 2 + 1 as int) as day")
    for mode in ("append", "overwrite"):
        frame.write.mode(mode).partitionBy("day").parquet(url)
    assert spark.read.parquet(url).count() == 40
spark.stop()
"""


def class_path(jars: Sequence[Path]) -> str:
    """A class path of jars, with a cluster's ``core-site.xml`` in a jar of its own: no archive
    fits a class path with folders."""
    site = fetch_s3a_jars.jar_folder().path.with_name("s3a-core-site.jar")
    if not site.is_file():
        part = site.with_suffix(".part")
        with zipfile.ZipFile(part, "w") as jar:
            jar.writestr(zipfile.ZipInfo("core-site.xml"), _CORE_SITE)
        part.replace(site)
    return ":".join(map(str, (*jars, site)))


def s3a_archive(path: str) -> Path:
    """Where the archive of a class path is, or would be."""
    plain = archive_path()
    digest = hashlib.sha256(path.encode()).hexdigest()[:12]
    return plain.with_name(f"s3a-{plain.stem}-{digest}.jsa")


def jvm_flags(path: str) -> str:
    """JVM flags for short runs, with the archive where it has been made."""
    return " ".join((*SMALL_JOB_FLAGS, *archive_flags(s3a_archive(path))))


def main() -> int:
    from torture.servers import serving

    from support.hadoop_committers import environment, static_settings
    from zero_rename.s3a.hadoop.settings import Committer, S3ASettings

    jars = fetch_s3a_jars.jar_folder().fetch()
    path = class_path(jars)
    archive = s3a_archive(path)
    if archive.is_file():
        print(f"class archive is there: {archive}")
        return 0
    with tempfile.TemporaryDirectory(prefix="zero-rename-") as folder, serving("moto") as store:
        store.client().create_bucket(Bucket="training")
        static = static_settings(store, jars, Path(folder))
        del static["spark.driver.extraJavaOptions"]
        words = (Committer.MAGIC, Committer.DIRECTORY)
        committers = {word: S3ASettings(word).spark_conf() for word in words}
        given = {"static": static, "committers": committers, "url": "s3a://training/"}
        variables = {**environment(store), "GIVEN": json.dumps(given)}
        class_archive.make(archive, _TRAINING, variables)
    print(f"class archive made: {archive}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
