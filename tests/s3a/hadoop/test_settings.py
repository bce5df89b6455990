"""One word makes the whole configuration, and no secret comes into it."""

from __future__ import annotations

from typing import Any

import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.s3a.hadoop.settings import Committer, S3ASettings

COMMITTER = "spark.hadoop.fs.s3a.committer."
CLOUD = "org.apache.spark.internal.io.cloud."
ALL = tuple(Committer)


def conf(committer: str = "magic", **given: Any) -> dict[str, str]:
    return S3ASettings(Committer(committer), **given).spark_conf()


@pytest.mark.parametrize("committer", ALL)
def test_names_all_five_keys(committer: Committer) -> None:
    # S3A conformance 11, 12
    made = conf(committer)
    assert made[f"{COMMITTER}name"] == committer.value
    assert made[f"{COMMITTER}magic.enabled"] == "true"
    assert made["spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a"].endswith(
        ".S3ACommitterFactory"
    )
    assert made["spark.sql.sources.commitProtocolClass"] == f"{CLOUD}PathOutputCommitProtocol"
    assert (
        made["spark.sql.parquet.output.committer.class"] == f"{CLOUD}BindingParquetOutputCommitter"
    )


@pytest.mark.parametrize("committer", ALL)
def test_safe_by_default(committer: Committer) -> None:
    # S3A conformance 4, 21, 78
    made = conf(committer)
    # It would be the whole application's: its other overwrites would delete their whole tables.
    assert "spark.sql.sources.partitionOverwriteMode" not in made
    assert made["spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs"] == "true"
    assert made["spark.hadoop.fs.s3a.multipart.purge"] == "false"
    assert made["spark.hadoop.fs.s3a.directory.operations.purge.uploads"] == "false"
    assert made["spark.hadoop.parquet.summary.metadata.level"] == "NONE"
    assert made["spark.yarn.maxAppAttempts"] == "1"
    assert made.get(f"{COMMITTER}abort.pending.uploads", "false") == "false"
    assert made.get(f"{COMMITTER}require.uuid", "true") == "true"
    assert f"{COMMITTER}uuid" not in made
    assert list(made) == sorted(made)
    assert all(isinstance(value, str) for value in made.values())
    assert all(key.startswith("spark.") for key in made)


@pytest.mark.parametrize("committer", ALL)
def test_tripwires(committer: Committer) -> None:
    algorithm = "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version"
    reject = "spark.hadoop.pathoutputcommit.reject.fileoutput"
    made = conf(committer)
    assert (made[algorithm], made[reject]) == ("10", "true")


def test_options_of_the_staging_committers() -> None:
    # S3A conformance 75
    made = conf("partitioned", conflict_mode="replace", staging_dir="tmp/x")
    assert made[f"{COMMITTER}staging.conflict-mode"] == "replace"
    assert made[f"{COMMITTER}staging.unique-filenames"] == "true"
    assert made[f"{COMMITTER}staging.tmp.path"] == "tmp/x"
    assert conf("directory")[f"{COMMITTER}staging.conflict-mode"] == "append"
    assert not any("staging" in key for key in conf("magic"))


def test_options_of_magic() -> None:
    key = f"{COMMITTER}magic.track.commits.in.memory.enabled"
    assert conf("magic")[key] == "false"
    assert key not in conf("directory")


def test_options_of_all() -> None:
    # S3A conformance 3
    made = conf(
        uuid="0b1c", threads=16, summary_report_dir="s3a://bucket/reports", buffer_dir="/data/s3a"
    )
    assert made[f"{COMMITTER}uuid"] == "0b1c"
    assert made[f"{COMMITTER}threads"] == "16"
    assert made[f"{COMMITTER}summary.report.directory"] == "s3a://bucket/reports"
    assert made["spark.hadoop.fs.s3a.buffer.dir"] == "/data/s3a"


def test_endpoints() -> None:
    path_style = "spark.hadoop.fs.s3a.path.style.access"
    aws = conf()
    assert path_style not in aws
    assert "spark.hadoop.fs.s3a.endpoint" not in aws
    other = conf(endpoint="http://minio:9000", region="us-east-1")
    assert other["spark.hadoop.fs.s3a.endpoint"] == "http://minio:9000"
    assert other["spark.hadoop.fs.s3a.endpoint.region"] == "us-east-1"
    assert other[path_style] == "true"
    assert conf(endpoint="https://s3.example.com", path_style=False)[path_style] == "false"


@pytest.mark.parametrize(
    ("given", "algorithm"), [("SSE-S3", "AES256"), ("SSE-KMS", "SSE-KMS"), ("DSSE-KMS", "DSSE-KMS")]
)
def test_encryption_and_storage_class(given: str, algorithm: str) -> None:
    # S3A conformance 22
    key = None if given == "SSE-S3" else "arn:aws:kms:eu-west-1:1:key/1"
    made = conf(encryption=given, encryption_key=key, storage_class="STANDARD_IA")
    assert made["spark.hadoop.fs.s3a.encryption.algorithm"] == algorithm
    assert made.get("spark.hadoop.fs.s3a.encryption.key") == key
    assert made["spark.hadoop.fs.s3a.create.storage.class"] == "standard_ia"


@pytest.mark.parametrize(
    ("committer", "given", "named"),
    [
        ("magic", {"conflict_mode": "replace"}, "conflict_mode"),
        ("directory", {"conflict_mode": "overwrite"}, "fail, append, replace"),
        ("magic", {"encryption": "SSE-C"}, "SSE-KMS"),
        ("magic", {"encryption": "SSE-C", "encryption_key": "secret"}, "encryption"),
        ("magic", {"encryption_key": "arn:aws:kms:eu-west-1:1:key/1"}, "SSE-C"),
        ("magic", {"encryption": "SSE-KMS", "encryption_key": "0123-plain"}, "ARN"),
        ("magic", {"storage_class": "deep_archive"}, "storage_class='deep_archive' is an archive"),
        ("magic", {"uuid": "a/b"}, "uuid"),
        ("magic", {"uuid": ""}, "uuid"),
        ("magic", {"buffer_dir": "/data\nspark.master local"}, "control characters"),
        ("magic", {"endpoint": "https://me:secret@store"}, "endpoint"),
    ],
)
def test_refused(committer: str, given: dict, named: str) -> None:
    # S3A conformance 13
    with pytest.raises(InvalidInputError, match=named) as refused:
        conf(committer, **given)
    assert "secret" not in str(refused.value).replace("are secrets", "")
    assert "0123-plain" not in str(refused.value)


def test_unknown_committer() -> None:
    # S3A conformance 12
    with pytest.raises(InvalidInputError, match="magic, directory, partitioned"):
        S3ASettings("zero_rename")  # pyrefly: ignore[bad-argument-type]


def test_no_credential_has_a_place() -> None:
    made = conf(encryption="SSE-KMS", encryption_key="alias/lake", endpoint="http://minio:9000")
    for word in ("access.key", "secret.key", "session.token", "password", "credentials"):
        assert not any(word in key for key in made)
