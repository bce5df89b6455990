"""Spark's writes into a bucket whose policy denies every object that names no encryption."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from conftest import Behind, Bucket

from support.faulty_server import FaultyServer
from support.moto_server import S3Server
from support.refusing_store import demanding_encryption, makes_an_object, names_encryption
from support.spark import INTERPRETED, environment, run_program
from zero_rename import Table
from zero_rename.committer import FileOptions
from zero_rename.committer.store.encryption import Algorithm, Encryption

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEY = "arn:aws:kms:us-east-1:123456789012:key/1"
DEMANDED = Encryption(Algorithm.SSE_KMS, KEY)

#: Each way in which Spark changes a table; only the writes at the head name the encryption.
EVERY_WRITE = f"""
import sys
from zero_rename.spark import merge, register, save, update
url, named = sys.argv[1], sys.argv[2] == "named"
spark = session()
for setting in {INTERPRETED!r}.items():
    spark.conf.set(*setting)
register(spark)

def rows(*numbers):
    return spark.createDataFrame([(n, str(n % 2)) for n in numbers], "n int, p string")

options = dict(encryption="SSE-KMS", encryptionKey=sys.argv[3]) if named else dict()
save(rows(1, 2), url, partition_by=["p"], options=options)
plain = rows(5, 6).write.format("zero_rename").options(partitionBy="p", **options)
plain.mode("append").save(url + "2")
for table in (url, url + "2"):
    save(rows(3), table, mode="overwrite", partitions=["p=1"])
    rows(4).write.format("zero_rename").mode("append").save(table)
    merge(rows(4, 7), table, on=["n"])
    update(table, set=dict(n="n + 10"), where="n = 7", spark=spark)
"""
#: Fails in its application, which puts it on record for its operator.
FAILING = """
import sys
from zero_rename.spark import register, save
spark = session()
register(spark)
save(spark.sql("select 1 n"), mode="overwrite", partitions=["p=1"])
"""


@pytest.fixture
def store(behind: Behind) -> FaultyServer:
    return behind(demanding_encryption("aws:kms", KEY))


def variables(server: S3Server, store: FaultyServer) -> dict[str, str]:
    return environment(server) | {"AWS_ENDPOINT_URL": store.endpoint}


def keys_of(bucket: Bucket) -> set[str | None]:
    heads = (bucket.client.head_object(Bucket=bucket.name, Key=key) for key in bucket.sizes())
    return {head.get("SSEKMSKeyId") for head in heads}


def unnamed(store: FaultyServer) -> list[str]:
    """The writes that came without the encryption."""
    writes = (got for got in store.received if makes_an_object(got))
    return [got.path for got in writes if not names_encryption(got, "aws:kms", KEY)]


def test_spark_writes_all_as_the_first_write_of_a_table_named_it(
    store: FaultyServer, s3_bucket: Bucket, s3_server: S3Server, tmp_path: Path
) -> None:
    url = f"s3://{s3_bucket.name}/t"
    done = run_program(EVERY_WRITE, variables(s3_server, store), url, "named", KEY, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    for table in (Table(url), Table(f"{url}2")):
        assert table.encryption == DEMANDED
        assert sorted(table.to_arrow()["n"].to_pylist())[-1] == 17
    assert keys_of(s3_bucket) == {KEY}


def test_spark_writes_all_as_its_submitter_says(
    store: FaultyServer, s3_bucket: Bucket, s3_server: S3Server, tmp_path: Path
) -> None:
    url = f"s3://{s3_bucket.name}/t"
    said = variables(s3_server, store) | {"ZERO_RENAME_ENCRYPTION": str(DEMANDED)}
    done = run_program(EVERY_WRITE, said, url, "unnamed", KEY, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert unnamed(store) == []
    assert Table(url).encryption == DEMANDED
    assert keys_of(s3_bucket) == {KEY}


def test_failure_of_an_application_is_put_on_record_as_its_submitter_says(
    store: FaultyServer, s3_bucket: Bucket, s3_server: S3Server, tmp_path: Path
) -> None:
    url = f"s3://{s3_bucket.name}/t"
    said = variables(s3_server, store) | {
        "ZERO_RENAME_TABLE": url,
        "ZERO_RENAME_TASK": "load",
        "ZERO_RENAME_IDEMPOTENCY_KEY": "dag/run/load",
        "ZERO_RENAME_ENCRYPTION": str(DEMANDED),
    }
    done = run_program(FAILING, said, folder=tmp_path)
    assert done.returncode != 0
    assert unnamed(store) == []
    assert [key for key in s3_bucket.sizes() if "/failures/" in key] != []


def test_submitters_encryption_leaves_a_tables_own(
    s3_bucket: Bucket, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zero_rename.spark import save

    url = f"s3://{s3_bucket.name}/t"
    data = pa.table({"n": pa.array([1], pa.int32())})
    with Table(url).job(data.schema, files=FileOptions(encryption="SSE-S3")) as job:
        job.write(data)
    monkeypatch.setenv("ZERO_RENAME_ENCRYPTION", str(DEMANDED))
    frame = spark.sql("select 2 n")  # pyrefly: ignore[missing-attribute]
    save(frame, url)
    assert Table(url).encryption == Encryption(Algorithm.SSE_S3)
    assert keys_of(s3_bucket) == {None}
