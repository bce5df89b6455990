"""A store that refuses for good: told at once, in its words, by jobs and by the doctor."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from conftest import Behind

from support.command_line import invoke
from support.faulty_server import Answer, Received, Reply
from support.memory_s3 import MemoryS3
from support.refusing_store import (
    OBJECT_LOCK,
    RETAINING,
    carries_bytes,
    denial,
    has_checksum,
    makes_an_object,
    refusing,
)
from zero_rename import Table
from zero_rename.committer import (
    FileOptions,
    InvalidInputError,
    StoreRefusedError,
    StreamError,
    TableRoot,
    UnfinishedCommitError,
)
from zero_rename.committer.store.fast_root import FastRoot
from zero_rename.committer.store.requests import Done, Head, ListParts, Put, Refused
from zero_rename.committer.upkeep.doctor.examination import backstop
from zero_rename.committer.upkeep.purging.upload_selection import UploadsPath
from zero_rename.orchestration.table_names import table_url

DATA = pa.table({"day": [1, 1], "value": [1, 2]})

SENTENCE = "The specified bucket takes no such object."
CLOSED = refusing(makes_an_object, denial(400, "InvalidRequest", SENTENCE))


def problems(table: Table) -> dict[str, Any]:
    return {problem.what: problem for problem in table.doctor()}


def test_permanent_refusal_of_a_record_ends_the_job_after_one_request(
    behind: Behind, s3_bucket: Any
) -> None:
    server, table = behind(CLOSED), Table(f"s3://{s3_bucket.name}/t")
    with pytest.raises(StoreRefusedError, match=SENTENCE) as it, table.job(DATA.schema) as job:
        job.write(DATA)
    assert "would be refused again" in str(it.value)
    assert [got.path for got in server.received if got.method == "PUT"] != []
    assert sum(makes_an_object(got) for got in server.received) == 1
    assert s3_bucket.keys() == []


def test_head_that_is_refused_without_a_reason_names_those_that_aws_has(
    behind: Behind, s3_bucket: Any
) -> None:
    behind(refusing(lambda got: got.method == "HEAD", Reply(400)))
    with pytest.raises(StoreRefusedError) as it:
        Table(f"s3://{s3_bucket.name}/t").driver.perform(Head("t/x"))
    assert "session has expired" in str(it.value.remedy)
    assert "AWS_REGION" in str(it.value.remedy)


def test_sizes_of_uploads_name_the_right_that_they_need(behind: Behind, s3_bucket: Any) -> None:
    behind(refusing(lambda got: "uploadId=" in got.path, denial(403, "AccessDenied", "No.")))
    with pytest.raises(StoreRefusedError) as it:
        Table(f"s3://{s3_bucket.name}/t").driver.perform(ListParts("t/x", "an upload"))
    assert "s3:ListMultipartUploadParts" in str(it.value.remedy)
    assert "--no-sizes" in str(it.value.remedy)


def test_doctor_tells_that_the_store_refuses_writes(behind: Behind, s3_bucket: Any) -> None:
    behind(CLOSED)
    found = problems(Table(f"s3://{s3_bucket.name}/t"))["store refuses writes"]
    assert SENTENCE in found.detail


def changed_by_every_verb(table: Table) -> None:
    rows = pa.table({"day": [1, 1, 2], "value": [1, 2, 3]})
    for mode in ("append", "append", "replace"):
        with table.job(rows.schema, partition_by=("day",), mode=mode) as job:
            job.write(rows)
    assert table.merge(pa.table({"day": [2], "value": [4]}), on=["value"]).committed
    assert table.delete([("value", "=", 1)], apply=True).rows.deleted == 1
    assert table.copy(Table(f"{table.root.url}2")).files == 2
    table.purge(apply=True)
    table.gc(0, apply=True)
    assert table.verify() == []
    assert sorted(table.to_arrow()["value"].to_pylist()) == [2, 3, 4]


def test_bucket_that_retains_objects_takes_every_write_with_a_checksum(
    behind: Behind, s3_bucket: Any
) -> None:
    """Object Lock refuses what has none; boto3's own are switched off."""
    server, table = behind(RETAINING), Table(f"s3://{s3_bucket.name}/t")
    changed_by_every_verb(table)
    writes = [got for got in server.received if carries_bytes(got)]
    refused = [got for got in writes if not has_checksum(got)]
    # The first that was sent, and who was sent beside it.
    assert 0 < len(refused) <= 4
    assert writes[: len(refused)] == refused
    assert "store refuses writes" not in problems(table)


def test_parts_of_a_file_have_a_checksum_where_objects_are_retained(
    behind: Behind, s3_bucket: Any
) -> None:
    server, table = behind(RETAINING), Table(f"s3://{s3_bucket.name}/t")
    noise = pa.table({"noise": [random.Random(1).randbytes(12 * 1024 * 1024)]})
    files = FileOptions(compression="none", part_bytes=5 * 1024 * 1024)
    with table.job(noise.schema, files=files) as job:
        job.write(noise)
    parts = [got for got in server.received if "partNumber=" in got.path]
    assert len({got.path for got in parts if has_checksum(got)}) > 1
    assert table.to_arrow() == noise


def test_write_under_a_condition_is_sent_again_with_a_checksum(
    behind: Behind, s3_bucket: Any
) -> None:
    behind(RETAINING)
    driver = Table(f"s3://{s3_bucket.name}/t").driver
    put = Put("t/note", b"{}", if_none_match=True)
    assert isinstance(driver.run(put), Done)
    assert driver.run(put) == Refused("PreconditionFailed")


def test_store_that_takes_all_gets_no_checksum(behind: Behind, s3_bucket: Any) -> None:
    """To compute one takes CPU, and older stores mangle boto3's trailers."""
    server = behind(lambda got, pass_on: pass_on())
    with Table(f"s3://{s3_bucket.name}/t").job(DATA.schema) as job:
        job.write(DATA)
    assert [got.path for got in server.received if carries_bytes(got) and has_checksum(got)] == []


def test_store_that_refuses_a_checksum_as_well_is_asked_twice(
    behind: Behind, s3_bucket: Any
) -> None:
    server = behind(refusing(makes_an_object, denial(400, "InvalidRequest", OBJECT_LOCK)))
    with pytest.raises(StoreRefusedError, match="would be refused again"):
        Table(f"s3://{s3_bucket.name}/t").job(DATA.schema).__enter__()
    assert [has_checksum(got) for got in server.received if makes_an_object(got)] == [False, True]


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


def test_right_that_a_lifecycle_rule_needs_is_named(behind: Behind, s3_bucket: Any) -> None:
    denied = denial(403, "AccessDenied", "Access Denied")
    behind(refusing(lambda got: got.method == "PUT" and "lifecycle" in got.path, denied))
    said = invoke("lifecycle", f"s3://{s3_bucket.name}/flights", "--apply")
    assert (said.exit_code, "s3:PutLifecycleConfiguration" in said.stderr) == (2, True)
    assert "s3:GetObject" not in said.stderr


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


@pytest.mark.parametrize(
    "url",
    [
        *("s3://AKIAKEY:hush@lake/t", "s3a://AKIAKEY:hu/sh@lake/t", "S3N://AKIAKEY:hush@lake"),
        *("s3://AKIAKEY:hush@/t", "https://user:hush@host/lake/t", "AKIAKEY:hush@lake/t"),
        *("s3:/AKIAKEY:hush@lake/t", "https://lake.s3.amazonaws.com/t?X-Amz-Signature=hush"),
    ],
)
@pytest.mark.parametrize("parse", [TableRoot.parse, UploadsPath.parse, FastRoot.parse])
def test_keys_in_a_url_are_refused_and_not_shown(url: str, parse: Callable[[str], Any]) -> None:
    """As Hadoop's first file systems took them."""
    with pytest.raises(InvalidInputError) as refused:
        parse(url)
    assert not [it for it in ("hush", "hu/sh", "AKIAKEY:") if it in str(refused.value)]


def test_keys_in_the_name_of_a_table_are_refused_and_not_shown() -> None:
    with pytest.raises(InvalidInputError, match="something before its bucket") as refused:
        table_url("s3a://AKIAKEY:hush@lake/t", "s3://lake", "a test")
    assert "hush" not in str(refused.value)


TIERING = """<ListBucketIntelligentTieringConfigurationsOutput>
<IsTruncated>false</IsTruncated>
<IntelligentTieringConfiguration><Id>cold</Id><Status>{status}</Status>
<Filter><Prefix>{prefix}</Prefix></Filter>
<Tiering><AccessTier>DEEP_ARCHIVE_ACCESS</AccessTier><Days>180</Days></Tiering>
<Tiering><AccessTier>ARCHIVE_ACCESS</AccessTier><Days>90</Days></Tiering>
</IntelligentTieringConfiguration>
</ListBucketIntelligentTieringConfigurationsOutput>"""
ARCHIVED, UNKNOWN = "intelligent tiering archives the table", "intelligent tiering unknown"
TIERED = FileOptions(storage_class="INTELLIGENT_TIERING")


def tiering(reply: Reply) -> Answer:
    """A store that answers so when it is asked for such configurations."""
    return refusing(lambda got: "intelligent-tiering" in got.path, reply)


def configured(status: str, prefix: str) -> Answer:
    text = TIERING.format(status=status, prefix=prefix)
    return tiering(Reply(200, text.encode(), {"Content-Type": "application/xml"}))


def loaded(bucket: Any, files: FileOptions) -> Table:
    table = Table(f"s3://{bucket.name}/t")
    with table.job(DATA.schema, files=files) as job:
        job.write(DATA)
    return Table(table.root.url)


@pytest.mark.parametrize("prefix", ["t/", "", "t/part-", "t"])
def test_doctor_names_a_configuration_that_archives_what_nobody_reads(
    prefix: str, behind: Behind, s3_bucket: Any
) -> None:
    behind(configured("Enabled", prefix))
    found = problems(loaded(s3_bucket, TIERED))[ARCHIVED]
    assert found.subject == "cold"
    assert "90 days to ARCHIVE_ACCESS" in found.detail
    assert "t/part-" in found.detail


@pytest.mark.parametrize(
    ("status", "prefix", "files"),
    [
        ("Disabled", "t/", TIERED),
        ("Enabled", "u/", TIERED),
        ("Enabled", "t/", FileOptions()),
        ("Enabled", "t/", FileOptions(storage_class="STANDARD_IA")),
    ],
)
def test_configuration_that_takes_none_of_the_table_is_no_finding(
    status: str, prefix: str, files: FileOptions, behind: Behind, s3_bucket: Any
) -> None:
    behind(configured(status, prefix))
    assert {ARCHIVED, UNKNOWN} & set(problems(loaded(s3_bucket, files))) == set()


def test_configurations_that_the_store_does_not_tell_are_a_finding_of_tables_of_that_class(
    behind: Behind, s3_bucket: Any
) -> None:
    behind(tiering(denial(403, "AccessDenied", "Access Denied")))
    found = problems(loaded(s3_bucket, TIERED))[UNKNOWN]
    assert "s3:GetIntelligentTieringConfiguration" in found.remedy


@pytest.mark.parametrize(
    "reply",
    [
        denial(403, "AccessDenied", "Access Denied"),
        denial(501, "NotImplemented", "no"),
        Reply(200, b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"),
    ],
)
def test_store_without_such_configurations_is_no_finding(
    reply: Reply, behind: Behind, s3_bucket: Any
) -> None:
    behind(tiering(reply))
    assert {ARCHIVED, UNKNOWN} & set(problems(loaded(s3_bucket, FileOptions()))) == set()
