"""Fetch what the tests with Hadoop's own S3A committers need, into the user's cache folder.

``python tools/fetch_s3a_jars.py`` brings the four jars that PySpark's wheel lacks (700 MB), each
of a pinned version with a pinned digest. What is there is left alone.
What their POMs ask for besides is in PySpark's own jars already, or is not to be had. The S3
servers of these tests are ``tools/s3_servers.py``'s.
"""

from __future__ import annotations

import sys
from pathlib import Path

# As a script it finds its neighbours by the checkout's folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.maven_jars import Jar, JarFolder, fetch_or_say

#: hadoop-aws is of the version of PySpark's own Hadoop jars; the bundle and the accelerator are
#: those its POM names. spark-hadoop-cloud has no later release; it works with Spark 4.3.
JARS = (
    Jar(
        "org.apache.hadoop",
        "hadoop-aws",
        "3.5.0",
        "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa",
    ),
    Jar(
        "org.apache.spark",
        "spark-hadoop-cloud_2.13",
        "4.1.1",
        "e5b41b43d481510afd0cdc372b593770ddee5a0a348d0744cef6c6cd77a27943",
    ),
    Jar(
        "software.amazon.s3.analyticsaccelerator",
        "analyticsaccelerator-s3",
        "1.3.1",
        "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e",
    ),
    Jar(
        "software.amazon.awssdk",
        "bundle",
        "2.35.4",
        "db4b55f24ad1b4e70f17eb1717a4de76a8dadc5a27d764be7c44ff67b2c1c677",
    ),
)


def jar_folder() -> JarFolder:
    """Where the jars are, or would be."""
    return JarFolder.named(f"s3a-jars-{JARS[0].version}-{JARS[1].version}", JARS)


def cached_jars() -> tuple[Path, ...] | None:
    """The jars, if all are there and were found to be the right ones; ``None`` otherwise."""
    return jar_folder().cached()


if __name__ == "__main__":
    sys.exit(fetch_or_say(jar_folder()))
