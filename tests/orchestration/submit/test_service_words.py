"""Words of requests to services: what is added to a user's own, and what is refused."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.orchestration.submit.job_mark import JobMark
from zero_rename.orchestration.submit.service_words import (
    refuse_in_request,
    spark_step,
    with_arguments,
    with_driver_words,
    with_words,
)

ADDED = ["--conf", "spark.x=y"]


@pytest.mark.parametrize(
    ("given", "files"),
    [
        ("", "s3://p.zip"),
        ("--conf spark.a=b", "s3://p.zip"),
        ("--py-files s3://a.zip --conf spark.a=b", "s3://a.zip,s3://p.zip"),
        ("--py-files=s3://a.zip", "s3://a.zip,s3://p.zip"),
        (
            "--conf spark.a=b --py-files 's3://a b.zip,s3://c.zip'",
            "s3://a b.zip,s3://c.zip,s3://p.zip",
        ),
        ('--conf "spark.submit.pyFiles=s3://a.zip" --name x', "s3://a.zip,s3://p.zip"),
        ("--conf spark.submit.pyFiles=s3://a.zip", "s3://a.zip,s3://p.zip"),
        ("--conf=spark.submit.pyFiles=s3://a.zip", "s3://a.zip,s3://p.zip"),
        ("-c spark.submit.pyFiles=s3://a.zip", "s3://a.zip,s3://p.zip"),
        ("--verbose --py-files='s3://a b.zip'", "s3://a b.zip,s3://p.zip"),
        # Spark takes the option, and of several the last.
        ("--conf spark.submit.pyFiles=s3://x.zip --py-files=s3://a.zip", "s3://a.zip,s3://p.zip"),
        ("--py-files s3://a.zip --conf=spark.submit.pyFiles=s3://x.zip", "s3://a.zip,s3://p.zip"),
        ("--py-files s3://x.zip --py-files s3://a.zip", "s3://a.zip,s3://p.zip"),
    ],
)
def test_the_package_comes_behind_the_user_s_files(given: str, files: str) -> None:
    words = shlex.split(with_words(given, {"spark.x": "y"}, "s3://p.zip"))
    assert words[-2:] == ADDED
    (found,) = [word.rpartition("=")[2] for word in words if word.endswith("s3://p.zip")]
    assert found == files
    kept = [word for word in shlex.split(given) if "://" not in word]
    assert [word for word in words[:-2] if word in kept] == kept
    assert shlex.split(with_words(given, {}, None)) == shlex.split(given)


@pytest.mark.parametrize(
    ("given", "files"), [("--verbose", "s3://a.zip,s3://p.zip"), ("--py-files=b", "b,s3://p.zip")]
)
def test_files_that_the_configuration_names_are_kept_where_an_option_takes_its_place(
    given: str, files: str
) -> None:
    properties = {"spark.a": "b", "spark.submit.pyFiles": "s3://a.zip"}
    overrides = {
        "applicationConfiguration": [
            {"classification": "spark-log4j", "properties": {"spark.submit.pyFiles": "x"}},
            {"classification": "spark-defaults", "properties": properties},
        ]
    }
    driver = {"sparkSubmit": {"entryPoint": "s3://j.py", "sparkSubmitParameters": given}}
    made = with_driver_words(driver, "sparkSubmit", {}, "s3://p.zip", overrides)
    words = shlex.split(made["sparkSubmit"]["sparkSubmitParameters"])
    assert words[-1].rpartition("=")[2] == files
    assert sum("--py-files" in word for word in words) == 1


def test_words_of_a_step() -> None:
    given = ["/usr/bin/spark-submit", "--py-files", "s3://a.zip", "s3://job.py", "--day", "1 2"]
    assert with_arguments(given, {"spark.x": "y"}, "s3://p.zip") == [
        *(given[0], *ADDED, "--py-files", "s3://a.zip,s3://p.zip", *given[3:])
    ]
    assert with_arguments(["spark-submit", "j.py"], {}, "s3://p.zip") == [
        *("spark-submit", "--py-files", "s3://p.zip", "j.py")
    ]
    by_conf = ["spark-submit", "--conf", "spark.submit.pyFiles=s3://a.zip", "j.py"]
    assert (
        with_arguments(by_conf, {}, "s3://p.zip")[2] == "spark.submit.pyFiles=s3://a.zip,s3://p.zip"
    )
    in_one = ["spark-submit", "--py-files=s3://a.zip", "j.py"]
    assert with_arguments(in_one, {}, "s3://p.zip")[1] == "--py-files=s3://a.zip,s3://p.zip"


def test_what_follows_the_application_is_its_own() -> None:
    theirs = ["j.py", "--py-files", "x", "--conf", "spark.submit.pyFiles=x", "--py-files=x"]
    assert with_arguments(["spark-submit", "--supervise", *theirs], {}, "s3://p.zip") == [
        *("spark-submit", "--py-files", "s3://p.zip", "--supervise", *theirs)
    ]


def test_more_than_a_service_takes() -> None:
    with pytest.raises(InvalidInputError, match=r"sparkSubmitParameters would have 102,4.*'\*'"):
        with_words("", {"spark.x": "y" * 102_400}, None)
    with pytest.raises(InvalidInputError, match=r"a word of the step would have 10,2.*'\*'"):
        with_arguments(["spark-submit"], {"spark.x": "y" * 10_280}, None)


@pytest.mark.parametrize(
    "steps", [None, [], ["x"], [None], [{"HadoopJarStep": None}], [{"HadoopJarStep": "x"}], "x"]
)
def test_what_is_not_a_step_is_refused_in_words(steps: Any) -> None:
    with pytest.raises(InvalidInputError, match="steps is not one step that runs spark-submit"):
        spark_step(steps)


@pytest.mark.parametrize("package", [None, "s3://p.zip"])
@pytest.mark.parametrize("given", ["--conf spark.a='x", '--conf "spark.a=it --verbose'])
def test_quotes_that_are_not_closed_are_refused(given: str, package: str | None) -> None:
    """The hand-off became a part of the last word."""
    with pytest.raises(InvalidInputError, match="Close the quotes in sparkSubmitParameters"):
        with_words(given, {"spark.x": "y"}, package)


def test_parameters_that_are_null_are_none() -> None:
    driver = {"sparkSubmit": {"entryPoint": "s3://j.py", "sparkSubmitParameters": None}}
    made = with_driver_words(driver, "sparkSubmit", {"spark.x": "y"}, "s3://p.zip", None)
    words = made["sparkSubmit"]["sparkSubmitParameters"]
    assert words == "--py-files s3://p.zip --conf spark.x=y"


SECRET = "wJalrXUtnFEMI"


@pytest.mark.parametrize(
    "request_",
    [
        {
            "sparkSubmit": {
                "sparkSubmitParameters": f"--conf spark.hadoop.fs.s3a.secret.key={SECRET}"
            }
        },
        {"sparkSubmit": {"entryPointArguments": ["--token", SECRET]}},
        {"sparkSubmit": {"entryPointArguments": [f"jdbc://user:{SECRET}@host"]}},
        {"applicationConfiguration": [{"properties": {"spark.my.password": SECRET}}]},
        [{"HadoopJarStep": {"Args": ["spark-submit", f"--conf=spark.x.password={SECRET}"]}}],
        {"spark_python_task": {"parameters": ["--token", SECRET, 7]}},
        {"arguments": ["--token", SECRET, ["more"]]},
        [{"HadoopJarStep": {"Properties": [{"Key": "db.password", "Value": SECRET}]}}],
        {"env": [{"name": "DB_PASSWORD", "value": 20130201}]},
        {"--db-password": SECRET},
        {"--conf": f"spark.a=b --conf spark.db.password={SECRET}"},
    ],
)
def test_a_credential_is_refused_and_not_shown(request_: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^given\b.* is or holds a credential") as caught:
        refuse_in_request(request_, "given")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("secret", ["it's me", "a b c", "x=1,y;z"])
def test_secret_of_a_connection_is_refused_among_words(secret: str) -> None:
    with pytest.raises(InvalidInputError, match=r"^given\b.* is or holds a credential"):
        refuse_in_request({"entryPointArguments": ["--with", secret]}, "given", {secret})


@pytest.mark.parametrize(
    "request_",
    [
        {"env": [{"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "x"}}}]},
        {"parameters": ["--day", 7, None, True], "tags": [{"Key": "a", "Value": "b"}]},
        {"sparkSubmitParameters": "--conf spark.my.password=EMR.secret@flights --conf spark.a=b"},
        {"properties": {"spark.my.password": "EMR.secret@flights"}},
        {"--enable-metrics": "true", "--TempDir": "s3://lake/tmp", "NumberOfWorkers": 2},
        None,
        "[{'Name': 'x'}]",
    ],
)
def test_what_is_none(request_: Any) -> None:
    refuse_in_request(request_, "given")


class TestMarks:
    def test_one_comes_back_out_of_a_name(self) -> None:
        mark = JobMark.of("s3://b/t", "d/r/t", "2013 0 2", 3)
        assert JobMark.find(mark.after("the flights", 256)) == mark
        name = mark.after("a-very-long-name-of-a-dag.and-of-its-task-beside-it", 64, "-")
        assert len(name) == 64
        assert JobMark.find(name) == mark
        assert JobMark.find("flights zr-1234") is None
        assert len(str(mark)) <= 64

    def test_what_tells_marks_apart(self) -> None:
        marks = {
            str(JobMark.of(table, idempotency_key, series, number))
            for table in ("s3://b/t", "s3://b/u")
            for idempotency_key in ("d/r/t", "d/r/u")
            for series in (None, "x")
            for number in (1, 2)
        }
        assert len(marks) == 16
