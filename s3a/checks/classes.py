"""Classes: those that the committer needs can be loaded."""

from __future__ import annotations

from collections.abc import Iterator

from .check import Severity, check
from .job_facts import JobFacts


@check(
    "classes-missing",
    Severity.ERROR,
    "classes that this committer needs cannot be loaded",
    reason="Neither S3A nor its AWS SDK is in the PySpark package, and Spark's two binding classes "
    "are in a module of their own, spark-hadoop-cloud. Spark is asked, in the driver: names of "
    "jars tell too little of images, shaded jars and clusters' own folders.",
    source="Utils.classIsLoadable; seen in the PySpark 4.3.0 package; SPARK-47618 (chooses magic "
    "only where the binding classes are there, without a word)",
    remedy="Put hadoop-aws of the version of Spark's hadoop-client-api, the SDK that it names and "
    "spark-hadoop-cloud (Spark's version, or 4.1.1 for 4.3) on the class path; docs/airflow.md "
    "says how.",
    stage="in job",
)
def classes_missing(c: JobFacts) -> Iterator[str]:
    if c.missing_classes:
        yield f"Spark cannot load {', '.join(c.missing_classes)}"
