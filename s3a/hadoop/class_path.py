"""Which jars a job will have, told from names before any JVM is started.

Looked at: Spark's own folder, ``spark.jars`` and the operator's ``jars``, ``spark.jars.packages``
and the operator's ``packages``, ``spark.driver.extraClassPath`` and its like for executors, and
``SPARK_DIST_CLASSPATH`` of builds without Hadoop. A jar whose name says nothing, such as an
application's own with everything in it, is opened and its list of files read.
"""

from __future__ import annotations

import glob
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .effective_settings import version_of

BOTH = frozenset({"driver", "executor"})
_DRIVER, _EXECUTOR = frozenset({"driver"}), frozenset({"executor"})
_JAR_NAME = re.compile(r"(?P<artifact>[A-Za-z][\w.\-]*?)(?:_(?P<scala>2\.\d+))?-(?P<version>\d.*)")
_COORDINATES = re.compile(
    r"(?P<group>[^:\s]+):(?P<artifact>[^:\s]+?)(?:_(?P<scala>2\.\d+))?:(?P<version>[^:\s]+)"
)

HADOOP_AWS = "hadoop-aws"
HADOOP_CLIENT = ("hadoop-client-api", "hadoop-common")
CLOUD = "spark-hadoop-cloud"
SPARK_CORE = "spark-core"
#: ``software.amazon.awssdk:bundle``; the names of its parts where somebody takes them singly.
SDK_BUNDLE = "bundle"
SDK_S3 = "s3"
#: ``com.amazonaws:aws-java-sdk-bundle``, for Hadoop before 3.4.
SDK_V1 = "aws-java-sdk-bundle"
ACCELERATOR = "analyticsaccelerator-s3"
_KNOWN = {
    HADOOP_AWS,
    *HADOOP_CLIENT,
    "hadoop-client-runtime",
    CLOUD,
    SPARK_CORE,
    SDK_BUNDLE,
    SDK_S3,
    SDK_V1,
    ACCELERATOR,
}
#: Classes that show what a jar holds whose name does not tell.
_INSIDE = {
    "org/apache/hadoop/fs/s3a/S3AFileSystem.class": HADOOP_AWS,
    "org/apache/spark/internal/io/cloud/PathOutputCommitProtocol.class": CLOUD,
    "software/amazon/awssdk/services/s3/S3Client.class": SDK_BUNDLE,
    "com/amazonaws/services/s3/AmazonS3.class": SDK_V1,
    "software/amazon/s3/analyticsaccelerator/S3SeekableInputStream.class": ACCELERATOR,
}

#: The SDK each Hadoop was built with: HADOOP-19082, HADOOP-19485, HADOOP-19654.
SDK_OF_HADOOP: Mapping[tuple[int, ...], tuple[int, ...]] = {
    (3, 4, 1): (2, 24, 6),
    (3, 4, 2): (2, 29, 52),
    (3, 4, 3): (2, 35, 4),
    (3, 5, 0): (2, 35, 4),
}
#: The Hadoop each Spark was built with, which its spark-hadoop-cloud brings when it is resolved
#: with what it depends on.
HADOOP_OF_SPARK: Mapping[tuple[int, ...], str] = {
    (3, 4): "3.3.4",
    (3, 5): "3.3.4",
    (4, 0): "3.4.1",
    (4, 1): "3.4.2",
    (4, 2): "3.5.0",
    (4, 3): "3.5.0",
}


@dataclass(frozen=True)
class Jar:
    """One jar.

    :param artifact: its Maven artifact without Scala's version, such as ``hadoop-aws``.
    :param version: ``""`` where only its contents tell what it is.
    :param origin: which setting or folder names it.
    :param seen_by: ``driver``, ``executor`` or both.
    :param scala: the Scala version in its name, such as ``2.13``.
    """

    artifact: str
    version: str
    origin: str
    seen_by: frozenset[str] = BOTH
    scala: str = ""

    def __str__(self) -> str:
        scala = f"_{self.scala}" if self.scala else ""
        return f"{self.artifact}{scala} {self.version or 'of unknown version'} ({self.origin})"


@dataclass(frozen=True)
class Jars:
    """The jars of a job that matter here.

    :param found: in the order in which they were met.
    :param complete: whether Spark's own folder was seen, so that what is not here is missing.
        ``False`` where the driver runs in an image or on a machine that cannot be seen.
    """

    found: tuple[Jar, ...] = ()
    complete: bool = True

    def of(self, *artifacts: str) -> tuple[Jar, ...]:
        """The jars of these artifacts."""
        return tuple(jar for jar in self.found if jar.artifact in artifacts)

    def version(self, *artifacts: str) -> str | None:
        """The version of the first one that says it."""
        return next((jar.version for jar in self.of(*artifacts) if jar.version), None)

    def has(self, *artifacts: str) -> bool:
        """Whether driver and executors both see one of these artifacts."""
        seen = frozenset().union(*(jar.seen_by for jar in self.of(*artifacts)))
        return seen == BOTH

    @property
    def has_cloud_classes(self) -> bool:
        """Whether Spark's two binding classes can be loaded by the driver."""
        return any("driver" in jar.seen_by for jar in self.of(CLOUD))

    @property
    def spark_version(self) -> str | None:
        """Spark's version, from ``spark-core``."""
        return self.version(SPARK_CORE)

    @property
    def hadoop_version(self) -> str | None:
        """The version of Hadoop's client."""
        return self.version(*HADOOP_CLIENT)

    def summary(self) -> dict[str, list[str]]:
        """Versions by artifact, for a log line or a JSON document."""
        names = sorted({jar.artifact for jar in self.found})
        return {name: sorted({jar.version or "unknown" for jar in self.of(name)}) for name in names}


def look_for_jars(
    spark_home: Path | None,
    conf: Mapping[str, str],
    jars: str | None = None,
    packages: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Jars:
    """The jars of a job that is not submitted yet. Reads folders, starts nothing.

    :param spark_home: Spark's folder, or that of the ``pyspark`` package; ``None`` where Spark
        runs elsewhere (Kubernetes, cluster mode), and its own jars cannot be seen.
    :param conf: the settings in force, by Spark's names.
    :param jars: ``--jars``: paths or URLs, separated by commas.
    :param packages: ``--packages``: Maven coordinates, separated by commas.
    """
    found: list[Jar] = []
    complete = spark_home is not None and (spark_home / "jars").is_dir()
    if spark_home is not None and complete:
        found += _in_paths((spark_home / "jars").glob("*.jar"), "Spark's jars folder", BOTH)
    for name, seen in (
        ("spark.driver.extraClassPath", _DRIVER),
        ("spark.executor.extraClassPath", _EXECUTOR),
    ):
        found += _in_paths(class_path(conf.get(name, "")), name, seen)
    found += _in_paths(
        class_path(environ.get("SPARK_DIST_CLASSPATH", "")), "SPARK_DIST_CLASSPATH", BOTH
    )
    # An argument of spark-submit takes the place of the setting, it does not add to it.
    source = ("--jars", jars) if jars else ("spark.jars", conf.get("spark.jars"))
    found += _in_paths(map(Path, _listed(source[1])), source[0], BOTH)
    source = (
        ("--packages", packages)
        if packages
        else ("spark.jars.packages", conf.get("spark.jars.packages"))
    )
    found += _from_packages(_listed(source[1]), source[0])
    return Jars(tuple(found), complete)


def class_path(text: str) -> Iterator[Path]:
    """The jars that a Java class path names: ``dir/*`` is every jar of the folder."""
    for entry in filter(None, text.split(os.pathsep)):
        if entry.endswith("*"):
            yield from map(Path, sorted(glob.glob(f"{entry}.jar")))
        elif entry.endswith(".jar"):
            yield Path(entry)


def _listed(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _in_paths(paths: Iterable[Path], origin: str, seen_by: frozenset[str]) -> Iterator[Jar]:
    for path in sorted(paths, key=lambda path: path.name):
        match = _JAR_NAME.fullmatch(path.name.removesuffix(".jar"))
        if match and match["artifact"] in _KNOWN and path.suffix == ".jar":
            scala = match["scala"] or ""
            yield Jar(match["artifact"], match["version"], origin, seen_by, scala)
        elif origin != "Spark's jars folder":
            yield from _inside(path, f"{path.name} of {origin}", seen_by)


def _inside(path: Path, origin: str, seen_by: frozenset[str]) -> Iterator[Jar]:
    """What a local jar holds, from its table of contents alone."""
    path = Path(str(path).removeprefix("file:").replace("//", "/", 1))
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.NameToInfo
            yield from (
                Jar(artifact, "", origin, seen_by)
                for entry, artifact in _INSIDE.items()
                if entry in names
            )
    except (OSError, zipfile.BadZipFile):
        return  # Not here, or no jar: Spark will say so itself.


def _from_packages(coordinates: Iterable[str], origin: str) -> list[Jar]:
    """The jars of Maven coordinates, with those that they bring along."""
    named = []
    for text in coordinates:
        match = _COORDINATES.fullmatch(text)
        if match and match["artifact"] in _KNOWN:
            scala = match["scala"] or ""
            named.append(Jar(match["artifact"], match["version"], origin, BOTH, scala))
    found = list(named)
    cloud = next((jar for jar in named if jar.artifact == CLOUD), None)
    if cloud and not any(jar.artifact == HADOOP_AWS for jar in named):
        hadoop = HADOOP_OF_SPARK.get(version_of(cloud.version)[:2], "")
        found.append(Jar(HADOOP_AWS, hadoop, f"brought by {CLOUD} in {origin}"))
    aws = next((jar for jar in found if jar.artifact == HADOOP_AWS), None)
    if aws is not None:
        found += _brought_by(aws, {jar.artifact for jar in named}, origin)
    return found


def _brought_by(aws: Jar, named: set[str], origin: str) -> Iterator[Jar]:
    hadoop = version_of(aws.version)
    sdk = SDK_BUNDLE if hadoop >= (3, 4) or not aws.version else SDK_V1
    if sdk not in named:
        version = ".".join(map(str, SDK_OF_HADOOP.get(hadoop, ())))
        yield Jar(sdk, version, f"brought by {HADOOP_AWS} in {origin}")
    if hadoop >= (3, 4, 2) and ACCELERATOR not in named:
        yield Jar(ACCELERATOR, "", f"brought by {HADOOP_AWS} in {origin}")
