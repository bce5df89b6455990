"""A store that refuses for good: told at once, in its words, by jobs and by the doctor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from conftest import Behind

from support.faulty_server import Received
from support.memory_s3 import MemoryS3
from support.refusing_store import OBJECT_LOCK, denial, makes_an_object, refusing
from zero_rename import Table
from zero_rename.committer import (
    InvalidInputError,
    StoreRefusedError,
    StoreUnfitError,
    StreamError,
    TableRoot,
    UnfinishedCommitError,
)
from zero_rename.committer.store.fast_root import FastRoot
from zero_rename.committer.upkeep.doctor import backstop
from zero_rename.committer.upkeep.upload_selection import UploadsPath
from zero_rename.orchestration.table_names import table_url

DATA = pa.table({"day": [1, 1], "value": [1, 2]})

LOCKED = refusing(makes_an_object, denial(400, "InvalidRequest", OBJECT_LOCK))


def problems(table: Table) -> dict[str, Any]:
    return {problem.what: problem for problem in table.doctor()}


def test_permanent_refusal_of_a_record_ends_the_job_after_one_request(
    behind: Behind, s3_bucket: Any
) -> None:
    server, table = behind(LOCKED), Table(f"s3://{s3_bucket.name}/t")
    words = "Content-MD5 OR x-amz-checksum- HTTP header"
    with pytest.raises(StoreRefusedError, match=words) as it, table.job(DATA.schema) as job:
        job.write(DATA)
    assert "would be refused again" in str(it.value)
    assert [got.path for got in server.received if got.method == "PUT"] != []
    assert sum(makes_an_object(got) for got in server.received) == 1
    assert s3_bucket.keys() == []


def test_doctor_tells_that_the_store_refuses_writes(behind: Behind, s3_bucket: Any) -> None:
    behind(LOCKED)
    found = problems(Table(f"s3://{s3_bucket.name}/t"))["store refuses writes"]
    assert OBJECT_LOCK in found.detail


def test_permanent_refusal_of_a_data_file_is_told_by_the_stores_sentence(
    behind: Behind, s3_bucket: Any
) -> None:
    key = "KMS.DisabledException"
    said = "arn:aws:kms:eu-west-1:1:key/2 is disabled."

    def of_data(got: Received) -> bool:
        return makes_an_object(got) and "_zero_rename" not in got.path

    behind(refusing(of_data, denial(400, key, said)))
    table = Table(f"s3://{s3_bucket.name}/t")
    job = table.job(DATA.schema)
    with pytest.raises(StreamError, match=r"key/2 is disabled") as raised, job:
        job.write(DATA)
    assert key in str(raised.value)
    assert table.exists() is False


@pytest.mark.memory_s3
def test_doctor_tells_at_once_that_a_committed_job_may_not_remove_what_it_replaced(
    s3_bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3://{s3_bucket.name}/t"

    def write() -> None:
        with Table(url).job(DATA.schema, mode="replace", partition_by=("day",)) as job:
            job.write(DATA)

    write()
    assert "deletions refused" not in problems(Table(url))
    answer = MemoryS3.call

    def call(self: MemoryS3, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        if operation == "DeleteObjects" and "/day=1/" in str(given):
            objects = given["Delete"]["Objects"]
            return {"Errors": [{"Key": it["Key"], "Code": "AccessDenied"} for it in objects]}
        if operation == "DeleteObject" and "/day=1/" in given["Key"]:
            said: Any = {"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}
            raise ClientError(said | {"ResponseMetadata": {"HTTPStatusCode": 403}}, operation)
        return answer(self, operation, given)

    monkeypatch.setattr(MemoryS3, "call", call)
    with pytest.raises(UnfinishedCommitError):
        write()
    found = problems(Table(url))["deletions refused"]
    assert "AccessDenied" in found.detail
    assert "recover" in found.remedy


@pytest.mark.parametrize("archive", ["GLACIER", "DEEP_ARCHIVE"])
def test_doctor_names_a_rule_that_moves_the_table_to_an_archive(
    archive: str, s3_bucket: Any
) -> None:
    url = f"s3://{s3_bucket.name}/t"
    with Table(url).job(DATA.schema) as job:
        job.write(DATA)
    put_rules(s3_bucket, rule("cold", "t/", archive), rule("elsewhere", "u/", archive))
    put = problems(Table(url))["lifecycle rule archives the table"]
    assert put.subject == "cold"
    assert archive in put.detail
    put_rules(s3_bucket, rule("warm", "t/", "GLACIER_IR"))
    assert "lifecycle rule archives the table" not in problems(Table(url))


def test_table_with_readers_heads_is_refused_below_a_rule_that_archives(s3_bucket: Any) -> None:
    put_rules(s3_bucket, rule("cold", "", "GLACIER"))
    job = Table(f"s3://{s3_bucket.name}/t").job(DATA.schema, readers="heads")
    with pytest.raises(StoreUnfitError, match="'cold' moves to GLACIER"), job:
        job.write(DATA)


def rule(name: str, prefix: str, archive: str) -> dict[str, Any]:
    return {
        "ID": name,
        "Status": "Enabled",
        "Filter": {"Prefix": prefix},
        "Transitions": [{"Days": 90, "StorageClass": archive}],
    }


def put_rules(bucket: Any, *rules: dict[str, Any]) -> None:
    bucket.client.put_bucket_lifecycle_configuration(
        Bucket=bucket.name, LifecycleConfiguration={"Rules": list(rules)}
    )


def test_lifecycle_rule_beside_one_of_the_older_form_names_that_rule(
    behind: Behind, s3_bucket: Any
) -> None:
    older = {"ID": "of 2014", "Status": "Disabled", "Prefix": "logs/", "Expiration": {"Days": 9}}
    put_rules(s3_bucket, older)
    mixed = "Base level prefix cannot be used in Lifecycle V2, prefixes are only allowed in Filter."

    def of_rules(got: Received) -> bool:
        return got.method == "PUT" and "lifecycle" in got.path and b"<Filter>" in got.body

    behind(refusing(of_rules, denial(400, "InvalidRequest", mixed)))
    root = TableRoot.parse(f"s3://{s3_bucket.name}/t")
    with pytest.raises(StoreRefusedError, match=r"'of 2014'.*Nothing was changed"):
        Table(root.url).run(backstop(root, None, None, apply=True))
    (kept,) = s3_bucket.client.get_bucket_lifecycle_configuration(Bucket=s3_bucket.name)["Rules"]
    assert kept["ID"] == "of 2014"


@pytest.mark.parametrize("scheme", ["S3://", "S3A://", "s3n://"])
def test_scheme_of_a_table_in_any_case_is_taken(scheme: str) -> None:
    assert TableRoot.parse(f"{scheme}lake/t").url == "s3://lake/t"
    assert table_url(f"{scheme}lake/t", None, "a test") == f"{scheme}lake/t"
    assert UploadsPath.parse(f"{scheme}lake/t").bucket == "lake"
    assert FastRoot.parse(f"{scheme}lake/t").url == "s3://lake/t"


ARN = "arn:aws:s3:eu-west-1:123456789012:accesspoint/ours"


@pytest.mark.parametrize("url", [f"s3://{ARN}/t", f"S3://{ARN}/t", ARN, "s3://arn:aws:s3:::lake/t"])
@pytest.mark.parametrize(
    "parse",
    [TableRoot.parse, UploadsPath.parse, FastRoot.parse, lambda url: table_url(url, "s3://l", "")],
    ids=["table", "uploads", "data_root", "name"],
)
def test_arn_for_a_bucket_is_refused_and_its_alias_named(
    url: str, parse: Callable[[str], Any]
) -> None:
    with pytest.raises(InvalidInputError, match="ARN where a bucket's name is") as refused:
        parse(url)
    assert "-s3alias" in str(refused.value)
