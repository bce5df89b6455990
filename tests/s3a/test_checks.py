"""Every check fires on what it is about, and stays silent on what is right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zero_rename.committer import InvalidInputError, Mode, SettingsRefusedError
from zero_rename.s3a.checks import ACCEPT_KEY, CHECKS, CheckFinding, JobFacts, inspect, refuse
from zero_rename.s3a.hadoop.effective_settings import CORE_SITE, DAG_CONF, HADOOP_KEYS, effective
from zero_rename.s3a.hadoop.settings import Committer, S3ASettings

HADOOP = "spark.hadoop."
COMMITTER = f"{HADOOP}fs.s3a.committer."
PROTOCOL = "spark.sql.sources.commitProtocolClass"
PARQUET = "spark.sql.parquet.output.committer.class"
CLOUD_PROTOCOL = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
SQL_PROTOCOL = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
DYNAMIC = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}
ABORT = f"{COMMITTER}abort.pending.uploads"
PURGE = f"{HADOOP}fs.s3a.multipart.purge"
DIRECTORY_PURGE = f"{HADOOP}fs.s3a.directory.operations.purge.uploads"
ALGORITHM = f"{HADOOP}mapreduce.fileoutputcommitter.algorithm.version"
MARKER = f"{HADOOP}mapreduce.fileoutputcommitter.marksuccessfuljobs"
STAGING = f"{COMMITTER}staging.tmp.path"
MAGIC = f"{COMMITTER}magic.enabled"
DEFAULT_FS = f"{HADOOP}fs.defaultFS"
IN_MEMORY = f"{COMMITTER}magic.track.commits.in.memory.enabled"
#: Options of one bucket are found by their prefix.
BUCKET = "fs.s3a.bucket."
FACTORY_CLASS = f"{HADOOP}mapreduce.outputcommitter.factory.class"
S3A_COMMIT = "org.apache.hadoop.fs.s3a.commit"


def job(
    committer: str = "magic",
    conf: dict[str, str] | None = None,
    core_site: dict[str, str] | None = None,
    **known: Any,
) -> JobFacts:
    """A job with the rendered settings of its committer, overridden by the DAG's ``conf``."""
    layers = [(DAG_CONF, conf or {})]
    if committer in list(Committer):
        layers.append(("settings", S3ASettings(Committer(committer)).spark_conf()))
    layers.append((CORE_SITE, core_site or {}))
    made = JobFacts(committer, effective(layers, "bucket"), "s3a://bucket/table")
    return replace(made, **known)


def bare(committer: str, *layers: tuple[str, dict[str, str]]) -> JobFacts:
    """A job without the rendered settings: only these layers."""
    return JobFacts(committer, effective(layers, "bucket"), "s3a://bucket/table")


# For each check: facts in which it must fire, and such close by in which it must not.
CASES: dict[str, tuple[list[JobFacts], list[JobFacts]]] = {
    "committer-name": (
        [
            job("magic", {f"{COMMITTER}name": "magicv2"}),
            job("directory", {f"{COMMITTER}name": "partitioned"}),
            job("magic", {f"{COMMITTER}name": "file"}),
            bare("magic"),
        ],
        [job("magic", {f"{COMMITTER}name": "magic"})],
    ),
    "commit-protocol-missing": (
        [job("magic", {PROTOCOL: SQL_PROTOCOL}), bare("directory")],
        # The binding protocol passes Parquet's own committer over, whichever it is.
        [job("directory"), job("magic", {PARQUET: "x.BindingPathOutputCommitter"})],
    ),
    "factory-overridden": (
        [
            job(conf={f"{HADOOP}mapreduce.outputcommitter.factory.class": "x.ManifestFactory"}),
            job(core_site={"mapreduce.outputcommitter.factory.class": "x.NamedCommitterFactory"}),
            job(conf={f"{HADOOP}mapreduce.outputcommitter.factory.scheme.s3a": "x.Other"}),
            job("directory", {FACTORY_CLASS: f"{S3A_COMMIT}.magic.MagicS3GuardCommitterFactory"}),
        ],
        [
            job(core_site={"mapreduce.outputcommitter.factory.scheme.s3a": "x.Other"}),
            job(conf={FACTORY_CLASS: f"{S3A_COMMIT}.S3ACommitterFactory"}),
            job(conf={FACTORY_CLASS: f"{S3A_COMMIT}.magic.MagicS3GuardCommitterFactory"}),
        ],
    ),
    "magic-disabled": (
        [
            job("magic", {f"{COMMITTER}magic.enabled": "false"}),
            job("magic", {f"{HADOOP}fs.s3a.bucket.bucket.committer.magic.enabled": "false"}),
        ],
        [
            job("magic"),
            job("magic", {f"{HADOOP}fs.s3a.bucket.another.committer.magic.enabled": "false"}),
            job("directory", {f"{COMMITTER}magic.enabled": "false"}),
        ],
    ),
    "magic-before-3.4": (
        [job(hadoop="3.3.4"), job(hadoop="3.3.6-amzn-1"), job(hadoop="2.10.2")],
        [job(), job(hadoop="3.4.0"), job(hadoop="4.0.0"), job("directory", hadoop="3.3.4")],
    ),
    "tripwire-off": (
        [
            job("magic", {f"{HADOOP}pathoutputcommit.reject.fileoutput": "false"}),
            job("magic", {ALGORITHM: "2"}),
        ],
        [job("magic")],
    ),
    "classes-missing": ([job(missing_classes=("x.Y",))], [job()]),
    "dynamic-partition-overwrite": (
        [job(conf=DYNAMIC), job(conf=DYNAMIC, save_mode=Mode.REPLACE)],
        [job(conf=DYNAMIC, save_mode=Mode.APPEND)],
    ),
    "overwrite-removes-table": ([job(overwrites_alone=True)], [job()]),
    "overwrite-removes-first": (
        [job(save_mode=Mode.REPLACE)],
        [job(save_mode=Mode.APPEND), job(conf=DYNAMIC, save_mode=Mode.REPLACE)],
    ),
    "uuid-shared": (
        [job(conf={f"{COMMITTER}uuid": "7e0c"}), job(core_site={"fs.s3a.committer.uuid": "7e0c"})],
        [
            job(),
            replace(
                job(),
                settings=effective(
                    [("operator", S3ASettings(Committer.MAGIC, uuid="u").spark_conf())]
                ),
            ),
        ],
    ),
    "driver-restarts": (
        [job(conf={"spark.yarn.maxAppAttempts": "2"})],
        [job(), job(conf={"spark.yarn.maxAppAttempts": "1"})],
    ),
    "abort-uploads-on": (
        [
            job(conf={ABORT: "true"}),
            job(conf={f"{COMMITTER}staging.abort.pending.uploads": "true"}),
        ],
        # A session looks the old name up, too, and Hadoop answers with the new one's value.
        [job(), job(conf={f"{COMMITTER}staging.abort.pending.uploads": "false"})],
    ),
    "multipart-purge": (
        [
            job(conf={PURGE: "true"}),
            job("zero_rename", {PURGE: "true"}),
            job(conf={PURGE: "true", f"{PURGE}.age": "30d"}),
        ],
        [job(), job("zero_rename")],
    ),
    "directory-purge": (
        [job(conf={DIRECTORY_PURGE: "true"}), job("zero_rename", {DIRECTORY_PURGE: "true"})],
        [job(), job("zero_rename")],
    ),
    "marker-off": ([job(conf={MARKER: "false"})], [job()]),
    "in-memory-tracking": (
        [job(conf={IN_MEMORY: "true"})],
        [job(), job("directory", {IN_MEMORY: "true"})],
    ),
    "staging-not-shared": (
        [
            job("directory", core_site={"fs.defaultFS": "file:///"}, is_cluster=True),
            job("partitioned", {DEFAULT_FS: "file:///"}, is_cluster=True),
            *(
                job("directory", {DEFAULT_FS: "file:///", STAGING: own}, is_cluster=True)
                for own in ("/tmp/staging", "/tmp", "file:///var/tmp", "/mnt/../tmp/staging")
            ),
        ],
        [
            job("directory", core_site={"fs.defaultFS": "hdfs://namenode"}, is_cluster=True),
            job("directory", {DEFAULT_FS: "file:///"}, is_cluster=False),
            job("directory", is_cluster=True),
            # A volume that all machines mount.
            job(
                "directory", {DEFAULT_FS: "file:///", STAGING: "/mnt/nfs/staging"}, is_cluster=True
            ),
            job("directory", {DEFAULT_FS: "file:///", STAGING: "file:///efs/s"}, is_cluster=True),
            job("magic", {DEFAULT_FS: "file:///"}, is_cluster=True),
        ],
    ),
    "staging-unknown": (
        [
            job("directory", is_cluster=True),
            job(
                "directory", {DEFAULT_FS: "file:///", STAGING: "/mnt/nfs/staging"}, is_cluster=True
            ),
        ],
        [
            job("directory", {DEFAULT_FS: "hdfs://namenode"}, is_cluster=True),
            job("directory", is_cluster=False),
            job("magic", is_cluster=True),
        ],
    ),
    "staging-on-s3": (
        [job("directory", {DEFAULT_FS: "s3a://bucket"})],
        [job("directory", {DEFAULT_FS: "hdfs://namenode"}), job("magic", {DEFAULT_FS: "s3a://b"})],
    ),
}


def ids(findings: tuple[CheckFinding, ...]) -> set[str]:
    return {finding.check.id for finding in findings}


def test_every_check_has_its_cases() -> None:
    assert set(CASES) == {check.id for check in CHECKS}
    for check in CHECKS:
        bad, good = CASES[check.id]
        assert bad, check.id
        # At least one of them is about a committer that the check looks at.
        assert any(c.committer in check.committers for c in good), check.id


@pytest.mark.parametrize("check", CASES)
def test_fires_on_what_it_is_about(check: str) -> None:
    for number, facts in enumerate(CASES[check][0]):
        assert check in ids(inspect(facts)), number


@pytest.mark.parametrize("check", CASES)
def test_stays_silent_on_what_is_right(check: str) -> None:
    for number, facts in enumerate(CASES[check][1]):
        assert check not in ids(inspect(facts)), number


@pytest.mark.parametrize("committer", ["zero_rename", "magic", "directory", "partitioned"])
@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REPLACE])
def test_the_settings_of_a_committer_raise_nothing(committer: str, mode: Mode) -> None:
    facts = job(
        committer, core_site={"fs.defaultFS": "hdfs://namenode"}, save_mode=mode, is_cluster=True
    )
    left = {"overwrite-removes-first"} if mode is Mode.REPLACE else set()
    left &= {check.id for check in CHECKS if committer in check.committers}
    assert ids(inspect(facts)) == left


class Asked(dict):
    """Settings that note which of them somebody asks for."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)
        self.keys_asked: set[str] = set()

    def get(self, key: str, default: object = None) -> object:
        self.keys_asked.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.keys_asked.add(str(key))
        return super().__contains__(key)


def test_the_options_that_are_read_are_those_a_session_looks_up() -> None:
    asked: set[str] = set()
    for bad, good in CASES.values():
        for facts in (*bad, *good):
            settings = Asked(facts.settings)
            inspect(replace(facts, settings=settings))
            asked |= settings.keys_asked
    hadoop = {key for key in asked if not key.startswith(("spark.", BUCKET))}
    assert hadoop == set(HADOOP_KEYS)


def test_errors_are_refused_by_name_and_warnings_are_not(caplog: pytest.LogCaptureFixture) -> None:
    found = inspect(job(conf={MAGIC: "false", IN_MEMORY: "true"}))
    assert [finding.check.id for finding in found] == ["magic-disabled", "in-memory-tracking"]
    with pytest.raises(SettingsRefusedError) as refused:
        refuse(found)
    assert "[in-memory-tracking]" in caplog.text
    text = str(refused.value)
    assert "magic-disabled" in text
    assert "'false' (DAG conf)" in text
    assert "Set fs.s3a.committer.magic.enabled=true" in text
    assert "in-memory-tracking" not in text
    assert "nothing was submitted" in text


def test_no_finding_shows_a_secret() -> None:
    secrets = {
        f"{HADOOP}fs.s3a.access.key": "AKIAIOSFODNN7EXAMPLE",
        f"{HADOOP}fs.s3a.secret.key": "wJalrXUtnFEMI",
        "fs.s3a.session.token": "a-dropped-token",
        f"{HADOOP}fs.s3a.bucket.bucket.secret.key": "another-secret",
    }
    for bad, _ in CASES.values():
        for facts in bad:
            layers = [(DAG_CONF, secrets)]
            added = {k: v for k, v in effective(layers).items() if v.value in secrets.values()}
            assert len(added) == 3
            changed = replace(facts, settings={**facts.settings, **added})
            text = " ".join(map(str, inspect(changed)))
            assert text
            assert not any(secret in text for secret in secrets.values())


def test_checks_are_accepted_by_their_ids() -> None:
    conf = {MAGIC: "false", IN_MEMORY: "true"}
    assert ids(inspect(job(conf=conf | {ACCEPT_KEY: "magic-disabled"}))) == {"in-memory-tracking"}
    assert inspect(job(conf=conf | {ACCEPT_KEY: "magic-disabled, in-memory-tracking"})) == ()
    with pytest.raises(InvalidInputError, match="names unknown checks: magic-disable"):
        inspect(job(conf={ACCEPT_KEY: "magic-disable"}))
