"""Whether S3A asks the store that boto3 asks, decided without either."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from support.session_stand_in import session
from zero_rename.committer import InvalidInputError, Table, TableRoot
from zero_rename.committer.commit.snapshot import Snapshot
from zero_rename.committer.format.records.data_file import DataFile
from zero_rename.spark import load
from zero_rename.spark.reading.listed_parquet import hidden_column
from zero_rename.spark.reading.session_store import endpoint_mismatch, session_store

HERE = "http://127.0.0.1:9000"


@pytest.mark.parametrize(
    ("ours", "told"),
    [
        (HERE, "http://127.0.0.1:9000"),
        (HERE, "http://127.0.0.1:9000/"),
        (HERE, "127.0.0.1:9000"),
        ("https://minio.lan", "minio.lan:443"),
        ("https://s3.eu-west-1.amazonaws.com", None),
        ("https://s3.amazonaws.com", ""),
        ("https://s3.eu-west-1.amazonaws.com", "s3.amazonaws.com"),
        ("https://s3.cn-north-1.amazonaws.com.cn", "https://s3.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_one_store(ours, told):
    assert endpoint_mismatch(ours, told) is None


@pytest.mark.parametrize(
    ("ours", "told", "reason"),
    [
        (HERE, None, "fs.s3a.endpoint is not set, and boto3 reads from 127.0.0.1:9000"),
        (HERE, "", "not set"),
        (HERE, "http://127.0.0.1:9001", "is 127.0.0.1:9001, and boto3 reads from 127.0.0.1:9000"),
        (HERE, "s3.amazonaws.com", "is s3.amazonaws.com"),
        ("https://s3.eu-west-1.amazonaws.com", HERE, "boto3 reads from AWS"),
        ("https://evil-amazonaws.com", None, "not set"),
        # A URL may carry a password, which no message repeats.
        (HERE, "http://user:secret@127.0.0.1:9001", "is 127.0.0.1:9001, and"),
    ],
)
def test_two_stores(ours, told, reason):
    found = endpoint_mismatch(ours, told)
    assert found is not None
    assert reason in found
    assert "secret" not in found


class Refused(Exception):
    """As py4j raises what S3A does where the store refuses the session's credentials."""

    java_exception = SimpleNamespace(
        toString=lambda: "java.nio.file.AccessDeniedException: s3a://b/t/f: 403\n\tat S3AUtils"
    )


def test_of_spark_connect_the_remedy_is_another(s3_bucket):
    """No setting makes its server read a list that the client has made."""
    url = f"s3://{s3_bucket.name}/t"
    schema = pa.schema([("n", pa.int64())])
    with Table(url).job(schema) as job:
        job.write(pa.table({"n": [1]}, schema))
    with pytest.raises(InvalidInputError, match="it is one of Spark Connect") as caught:
        load(session({}), url, by="spark")
    remedy = caught.value.remedy or ""
    assert "fs.s3a.endpoint" not in remedy
    for needed in (
        "Leave by= out",
        "pyspark[connect]",
        "zstandard",
        "Python workers of the server",
    ):
        assert needed in remedy


def test_a_session_whose_credentials_the_store_refuses():
    """boto3's are others: this package's reader goes by those, and says why Spark's does not."""
    endpoint = {"fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem", "fs.s3a.endpoint": HERE}
    spark = session({}, endpoint)

    def refuse(path):
        raise Refused("An error occurred while calling o1.getFileSystem")

    spark._jvm = SimpleNamespace(**{"org.apache.hadoop.fs.Path": refuse})
    file = DataFile("t/f", "", 1, 1, "", "")
    found = session_store(spark, TableRoot("b", "t"), HERE, file)
    assert found.scheme is None
    assert "s3a://: java.nio.file.AccessDeniedException: s3a://b/t/f: 403" in found.why_not
    assert "S3AUtils" not in found.why_not


@pytest.mark.parametrize(
    ("prefix", "by", "found"),
    [
        ("lake/flights", ("day",), None),
        ("env=prod/flights", ("day",), None),
        ("env=prod", ("day",), None),
        ("n=1/flights", ("day",), "n"),
        ("lake/N=1", ("day",), "n"),
        ("lake/n=1", (), None),  # of an unpartitioned table, no path is parsed
    ],
)
def test_columns_that_the_table_s_own_path_would_hide(prefix, by, found):
    schema = pa.schema([("n", pa.int64()), ("day", pa.int32())])
    state = Snapshot(TableRoot("bucket", prefix), schema, by, (), {})
    assert hidden_column(state) == found
