from __future__ import annotations

import time
from typing import Any

import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.orchestration.submit.credentials import (
    holds_credential,
    holds_one_of,
    looks_like_credential,
    mask,
    refuse_in_arguments,
    refuse_in_settings,
)

SECRET = "wJalrXUtnFEMIK7MDENG"


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.s3a.server-side-encryption.key",
        "spark.hadoop.fs.s3a.bucket.lake.access.key",
        "spark.hadoop.fs.azure.account.key.acct.dfs.core.windows.net",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.yarn.appMasterEnv.AWS_SESSION_TOKEN",
        "spark.kubernetes.driverEnv.AWS_ACCESS_KEY_ID",
        "spark.authenticate.secret",
        "spark.ssl.keyPassword",
        "spark.ssl.trustStorePassword",
        "spark.kubernetes.authenticate.driver.oauthToken",
    ],
)
def test_settings_that_hold_credentials(name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        refuse_in_settings({name: SECRET}, "conf")
    assert name in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "aws_conn_id" in str(caught.value)


STRANGERS = [
    f"jdbc:sqlserver://h:1433;user=me;password={SECRET};encrypt=true",
    f"jdbc:postgresql://h/db?user=me&password={SECRET}",
    f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SECRET}==;EndpointSuffix=x",
    f"redis://:{SECRET}@host:6379/0",
    f"mongodb+srv://me:{SECRET}@host/db",
    f"https://me:p@{SECRET}@host/x",
    f"--pwd={SECRET}",
    f"--password {SECRET}",
]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.kubernetes.driver.secretKeyRef.AWS_SECRET_ACCESS_KEY_REF", "aws:secret"),
        ("spark.kubernetes.driver.secrets.aws", "/etc/aws"),
        ("spark.authenticate.secret.file", "/etc/secret"),
        ("spark.authenticate.secretBitLength", "256"),
        ("spark.kubernetes.authenticate.oauthTokenFile", "/var/token"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "x.y.Provider"),
        ("spark.hadoop.fs.s3a.encryption.key", "arn:aws:kms:eu-west-1:1:key/2"),
        ("spark.hadoop.fs.s3a.delegation.token.binding", "x.y.Binding"),
        ("spark.security.credentials.hive.enabled", "false"),
        ("spark.kafka.clusters.a.sasl.token.mechanism", "SCRAM-SHA-512"),
        ("spark.sql.shuffle.partitions", 4),
        ("spark.redaction.regex", "(?i)secret|password"),
        ("spark.hadoop.fs.s3a.secret.key", ""),
    ],
)
def test_settings_that_do_not(name: str, value: Any) -> None:
    refuse_in_settings({name: value}, "conf")
    assert not looks_like_credential(name, value)


@pytest.mark.parametrize(
    "text",
    [
        f"-Dfs.s3a.secret.key={SECRET}",
        f"-Xmx1g -Dspark.x.password='{SECRET}'",
        "s3a://AKIAABCDEFGHIJKLMNOP/x",
        "s3a://ASIAABCDEFGHIJKLMNOP/x",  # of temporary credentials
        f"https://me:{SECRET}@repository/x",
        f"--token={SECRET}",
        f'{{"password": "{SECRET}"}}',
        *STRANGERS,
    ],
)
def test_texts_that_hold_credentials(text: str) -> None:
    assert holds_credential(text)


@pytest.mark.parametrize(
    "arguments",
    [["--csv", "in.csv", f"--token={SECRET}"], ["--password", SECRET], ["--api-key", SECRET]],
)
def test_arguments_that_hold_credentials(arguments: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="application_args") as caught:
        refuse_in_arguments(arguments, "application_args")
    assert SECRET not in str(caught.value)


def test_ordinary_arguments() -> None:
    refuse_in_arguments(
        ["--csv", "s3://b/in.csv", "--day", "2013-01-01", "--token-file", "/x", 5], "args"
    )
    refuse_in_arguments(None, "args")


@pytest.mark.parametrize("text", STRANGERS)
def test_masking_what_other_tools_write(text: str) -> None:
    shown = mask(f"spark-submit --conf x {text} --num-executors 2", [])
    assert SECRET not in shown
    assert "spark-submit --conf" in shown
    assert "--num-executors 2" in shown


@pytest.mark.parametrize(
    "line",
    [
        "jdbc:postgresql://h:5432/db?user=me&ssl=true",
        "s3a://bucket/day=1/part-0.parquet?x=1;y=2",
        "at 10:30 read https://host:443/a@b",
        "--token-file /x --password-file /y",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert mask(line, []) == line


def test_masking() -> None:
    line = f"spark-submit --conf fs.s3a.access.key=AKIAABCDEFGHIJKLMNOP --token={SECRET} in.csv"
    assert mask(line, []) == ("spark-submit --conf fs.s3a.access.key=****** --token=****** in.csv")
    assert mask(f"got {SECRET}!", [SECRET]) == "got ******!"
    assert mask('password="two words" x=1', []) == "password=****** x=1"
    assert mask("as ASIAABCDEFGHIJKLMNOP", []) == "as ******"


def test_a_secret_of_four_characters_is_masked_and_a_shorter_one_is_an_ordinary_word() -> None:
    assert mask("the cats", ["cats"]) == "the ******"
    assert mask("the cat", ["cat"]) == "the cat"


@pytest.mark.parametrize(
    "line", ["-" * 200_000, "a=" * 100_000, "-D" * 100_000, "x" + " " * 200_000]
)
def test_masking_a_long_line_takes_linear_time(line: str) -> None:
    started = time.process_time()
    mask(line, [SECRET])
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("hunter2", True),
        ("--x=hunter2", True),
        ("--conf spark.x=hunter2 --y", True),
        ("colour: 'hunter2'", True),
        ("https://hunter2.example", False),
        ("hunter22", False),
        ("abc", False),
        (f"x{SECRET}y", True),
        (f"{SECRET[:-1]}=", False),
        ("", False),
    ],
)
def test_a_known_secret_as_a_value(text: str, holds: bool) -> None:
    assert holds_one_of(text, ["hunter2", SECRET, "abc", ""]) == holds
