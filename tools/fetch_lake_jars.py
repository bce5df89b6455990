"""Fetch what Delta Lake and Apache Iceberg need on Spark 4.1, into the user's cache folder.

``python tools/fetch_lake_jars.py`` brings the five jars of Delta Lake (620 MB), with ``--iceberg``
three of Iceberg (130 MB) too, each of a pinned version with a pinned digest; ``make bench`` does so
itself. Iceberg has no release for a later Spark yet.
"""

from __future__ import annotations

import sys
from pathlib import Path

# As a script it finds its neighbours by the checkout's folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.maven_jars import Jar, JarFolder, fetch_or_say

#: hadoop-aws is of the version of that Spark's own Hadoop jars; the bundle and the accelerator are
#: those its POM names.
DELTA = (
    Jar(
        "io.delta",
        "delta-spark_4.1_2.13",
        "4.3.0",
        "35ae4164ee41bbfc8bdb52dcd3715ff4e1821a18c085e7a71a462e8e80e23ee5",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        "4.3.0",
        "d765a7144289c292e256963f810c1a4b096a8c09bdb3b0370096393b6a02b3c5",
    ),
    Jar(
        "org.apache.hadoop",
        "hadoop-aws",
        "3.4.2",
        "d2d24e6b715b5656b9d238bf13b6682a07e2004dd36aad74a73aeb854319f4d9",
    ),
    Jar(
        "software.amazon.s3.analyticsaccelerator",
        "analyticsaccelerator-s3",
        "1.2.1",
        "11029552e37408e41e689b20150f4b372e0b4f232de321ccafd0fcf443cdfb5a",
    ),
    Jar(
        "software.amazon.awssdk",
        "bundle",
        "2.29.52",
        "62638f33045690c6bc5e496b54b0b2e89a9ad38cbedacdf6e017fea6bc85f55c",
    ),
)
#: Its tables need no hadoop-aws: it has a client of its own.
ICEBERG = (
    Jar(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.1_2.13",
        "1.12.0",
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
    Jar(
        "org.apache.iceberg",
        "iceberg-aws-bundle",
        "1.12.0",
        "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
    ),
    Jar(
        "org.xerial",
        "sqlite-jdbc",
        "3.47.1.0",
        "4164d95347aeab42b754cabb7945b93e54f29ddb2eded967dbe979b4045cb685",
    ),
)


def delta_folder() -> JarFolder:
    """The folder of Delta's jars, there or not."""
    return JarFolder.named(f"delta-jars-{DELTA[0].version}", DELTA)


def iceberg_folder() -> JarFolder:
    """The folder of Iceberg's jars, there or not."""
    return JarFolder.named(f"iceberg-jars-{ICEBERG[0].version}", ICEBERG)


def fetch_both() -> tuple[Path, ...]:
    """Fetch the jars of both where they are not there.

    :raises FetchError: they cannot be had.
    """
    return (*delta_folder().fetch(), *iceberg_folder().fetch())


if __name__ == "__main__":
    wanted = [delta_folder(), *([iceberg_folder()] if "--iceberg" in sys.argv[1:] else [])]
    sys.exit(max(map(fetch_or_say, wanted)))
