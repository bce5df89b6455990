"""The committer that a service's job would write by."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from zero_rename.cli.main import app
from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.upkeep.access_policy import Service
from zero_rename.s3a.hadoop.effective_settings import effective
from zero_rename.s3a.hadoop.settings import (
    COMMIT_PROTOCOL_KEY,
    PARQUET_COMMITTER_KEY,
    PATH_PROTOCOL,
    Committer,
    S3ASettings,
)
from zero_rename.s3a.service_committer import UNKNOWN, committers_in_force
from zero_rename.s3a.services import (
    EMR_MAGIC_KEY,
    EMR_PARQUET_KEY,
    RULES,
    S3_FACTORY_KEY,
    emr_release,
    hadoop_of_emr,
    settings_of,
)

NAME = "spark.hadoop.fs.s3a.committer.name"
EMR = Service.EMR_SERVERLESS


def found(service: Service, release: str = "", **settings: str) -> tuple[str, str]:
    return named(service, release, settings)


def named(service: Service, release: str, settings: dict[str, str]) -> tuple[str, str]:
    """The committers for ``s3a://`` and for ``s3://``."""
    made = committers_in_force(service, release, effective([("--conf", settings)]))
    assert all(it.why.endswith(".") for it in made)
    return made[0].committer, made[1].committer


@pytest.mark.parametrize(
    ("service", "release", "committers"),
    [
        (EMR, "emr-7.10.0", ("MagicV2 of EMR", "MagicV2 of EMR")),
        (EMR, "emr-7.9.0", ("MagicV2 of EMR", "S3-optimised committer of EMRFS")),
        (Service.EMR_CONTAINERS, "emr-6.14.0-latest", (UNKNOWN, "S3-optimised committer of EMRFS")),
        (EMR, "", ("MagicV2 of EMR", UNKNOWN)),
        (Service.GLUE, "5.1", (UNKNOWN, UNKNOWN)),
        (Service.KUBERNETES, "", (UNKNOWN, "none")),
        (Service.DATABRICKS, "", ("DBIO's commit service", "DBIO's commit service")),
    ],
)
def test_service_without_settings_has_its_own(
    service: Service, release: str, committers: tuple[str, str]
) -> None:
    assert found(service, release) == committers


def test_reason_is_of_the_release_that_is_asked_about() -> None:
    reasons = {
        release: committers_in_force(Service.GLUE, release, effective([]))[0].why
        for release in ("5.0", "5.1")
    }
    assert "has taken EMRFS' place" in reasons["5.1"]
    assert reasons["5.0"] == "Before 5.1 AWS names no committer for S3A."


@pytest.mark.parametrize("committer", Committer)
@pytest.mark.parametrize("service", [it for it, row in RULES.items() if row.words])
def test_word_selects_hadoop_s_for_s3a(service: Service, committer: Committer) -> None:
    given = {**S3ASettings(committer).spark_conf(), **RULES[service].settings}
    assert named(service, "", given)[0] == committer


def test_word_selects_it_for_s3_where_that_is_s3a_and_fails_elsewhere() -> None:
    given = {**S3ASettings(Committer.MAGIC).spark_conf(), **RULES[EMR].settings}
    assert named(EMR, "emr-7.10.0", given) == ("magic", "magic")
    assert named(EMR, "emr-7.9.0", given) == ("magic", "none")
    emrfs = {"spark.hadoop.fs.s3.impl": "com.amazon.ws.emr.hadoop.fs.EmrFileSystem"}
    assert named(EMR, "emr-7.10.0", given | emrfs) == ("magic", "none")
    without = {key: it for key, it in given.items() if key != S3_FACTORY_KEY}
    assert named(EMR, "emr-7.10.0", without) == ("magic", "FileOutputCommitter")


@pytest.mark.parametrize(
    ("changed", "committer"),
    [
        ({NAME: "magicv2"}, "magicv2"),
        ({NAME: "file"}, "FileOutputCommitter"),
        ({PARQUET_COMMITTER_KEY: "x.Other"}, "FileOutputCommitter"),
        ({COMMIT_PROTOCOL_KEY: "x.Other"}, "Other"),
        ({"spark.hadoop.mapreduce.outputcommitter.factory.class": "x.Other"}, "Other"),
    ],
)
def test_half_of_the_settings_select_another(changed: dict[str, str], committer: str) -> None:
    given = {**S3ASettings(Committer.MAGIC).spark_conf(), **changed}
    assert named(EMR, "emr-7.10.0", given)[0] == committer


def test_what_nobody_documents_is_not_known() -> None:
    assert named(EMR, "emr-7.10.0", {EMR_MAGIC_KEY: "false"})[0] == UNKNOWN
    assert named(EMR, "emr-7.9.0", {EMR_PARQUET_KEY: "false"})[1] == UNKNOWN
    bound = {COMMIT_PROTOCOL_KEY: PATH_PROTOCOL}
    bound[PARQUET_COMMITTER_KEY] = S3ASettings(Committer.MAGIC).spark_conf()[PARQUET_COMMITTER_KEY]
    assert named(EMR, "emr-7.10.0", bound)[0] == UNKNOWN
    assert named(Service.KUBERNETES, "", bound)[0] == "FileOutputCommitter"


class TestTheCommand:
    def run(self, *words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, ["doctor", *words])
        assert done.exit_code == code, done.output
        return done.output

    def test_tells_the_service_s_own_and_why(self) -> None:
        said = self.run("--service", "emr-steps", "--release", "emr-7.10.0", code=1)
        assert "MagicV2 of EMR" in said
        assert "when its task commits" in said

    def test_tells_what_a_word_changes(self) -> None:
        words = ("--service", "glue", "--release", "5.1", "--committer", "magic", "--json")
        assert [it["committer"] for it in json.loads(self.run(*words))] == ["magic", "magic"]

    def test_settings_of_the_job_win(self) -> None:
        given = ("--service", "glue", "--committer", "magic", "--conf", f"{NAME}=magicv2")
        assert "magicv2" in self.run(*given, code=1)

    @pytest.mark.parametrize(
        "words",
        [
            (),
            ("--service", "mars"),
            ("--service", "glue", "--committer", "directory"),
            ("--service", "emr-steps", "--release", "latest"),
            ("--service", "emr-steps", "--conf", "x"),
            ("--service", "glue", "--release", "five"),
            ("s3://bucket/flights", "--service", "glue", "--release", "5.1"),
            ("--service", "glue", "--release", "5.1", "--apply"),
        ],
    )
    def test_refuses_what_cannot_be(self, words: tuple[str, ...]) -> None:
        self.run(*words, code=2)


def test_hadoop_of_a_release() -> None:
    labels = ("emr-7.0.0", "emr-7.3.0", "emr-7.4.0", "emr-7.7.0", "emr-7.8.0-latest", "emr-7.11.0")
    assert [hadoop_of_emr(it) for it in labels] == ["3.3.6"] * 2 + ["3.4.0"] * 2 + ["3.4.1", ""]
    for wrong in ("emr-6.15.0", "7.10.0", "emr-7", ""):
        with pytest.raises(InvalidInputError):
            hadoop_of_emr(wrong)
    assert emr_release("emr-7.10.0-spark-rapids-latest") == (7, 10)


def test_settings_in_an_argument_of_glue() -> None:
    assert settings_of("a=b --conf c=d=e  --conf 'f=g'") == {"a": "b", "c": "d=e", "f": "g"}
    assert settings_of("") == {}
