"""Command lines of spark-submit."""

from __future__ import annotations

import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.orchestration.submit.submission import Cluster, Submission, spark_submit

YARN = Cluster("yarn", "client", "spark3-submit")


def test_all_there_is_to_say() -> None:
    made = Submission({"KEY": "secret"}, "z.zip,a.py", "/p", {"spark.a": "ours"})
    words = spark_submit(
        YARN,
        made,
        "job.py",
        ["--day", "1"],
        name="load",
        conf={"spark.a": "theirs", "spark.b": 2},
        packages=["g:a:1", "g:b:2"],
    )
    assert words == [
        *("spark3-submit", "--master", "yarn", "--deploy-mode", "client"),
        *("--conf", "spark.a=ours", "--conf", "spark.b=2"),
        *("--packages", "g:a:1,g:b:2", "--py-files", "z.zip,a.py"),
        *("--properties-file", "/p", "--name", "load"),
        *("job.py", "--day", "1"),
    ]


def test_as_little_as_there_may_be() -> None:
    words = spark_submit(Cluster("local", None), Submission({}, None, None), "job.py")
    assert words == ["spark-submit", "--master", "local", "job.py"]


def test_credentials_are_refused_by_their_names_and_by_their_values() -> None:
    made = Submission({}, None, None)
    with pytest.raises(InvalidInputError, match=r"conf\['spark.hadoop.fs.s3a.secret.key'\]"):
        spark_submit(YARN, made, "job.py", conf={"spark.hadoop.fs.s3a.secret.key": "abcdefgh"})
    with pytest.raises(InvalidInputError, match="application_args '--token'"):
        spark_submit(YARN, made, "job.py", ["--token", "abcdefgh"])
    of_the_store = Submission({}, None, None, secrets=("abcdefgh",))
    with pytest.raises(InvalidInputError, match=r"^spark.x has, as its value, a key"):
        spark_submit(YARN, of_the_store, "job.py", conf={"spark.x": "abcdefgh"})
    with pytest.raises(InvalidInputError, match=r"^--colour has, as its value, a key"):
        spark_submit(YARN, of_the_store, "job.py", ["--colour", "abcdefgh"])
