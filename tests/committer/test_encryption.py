"""Buckets whose policy denies every object that does not name its encryption: each verb is taken
there, with all that it writes."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Behind, Bucket

from support.faulty_server import FaultyServer
from support.refusing_store import (
    SSE,
    demanding_encryption,
    denial,
    makes_an_object,
    names_encryption,
    refusing,
)
from zero_rename import JobSpec, Table
from zero_rename.committer import FileOptions, InvalidInputError, Outcome, StoreRefusedError
from zero_rename.committer.commit.failures import read_failure, tell_failure
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.store.encryption import Algorithm, Encryption
from zero_rename.committer.store.fast_root import FastRoot
from zero_rename.committer.store.requests import Done, ObjectSettings, Put, PutFile, Refused
from zero_rename.committer.upkeep.problem import Problem
from zero_rename.tables import DeltaTable

KEY = "arn:aws:kms:us-east-1:123456789012:key/1"
KMS = FileOptions(encryption="SSE-KMS", encryption_key=KEY)
DATA = pa.table({"day": [1, 1, 2], "value": [1, 2, 3]})
DEMANDED = Encryption(Algorithm.SSE_KMS, KEY)


@pytest.fixture
def store(behind: Behind) -> FaultyServer:
    """A bucket that demands SSE-KMS under one key."""
    return behind(demanding_encryption("aws:kms", KEY))


def fresh(bucket: Bucket, name: str = "t") -> Table:
    """A table as a new process meets it: nothing is known of its encryption."""
    return Table(f"s3://{bucket.name}/{name}", client=boto3.client("s3"))


def load(table: Table | DeltaTable, rows: pa.Table = DATA, **policies: Any) -> None:
    given: dict[str, Any] = {"partition_by": ("day",), **policies}
    with table.job(rows.schema, **given) as job:
        job.write(rows)


def refused(store: FaultyServer) -> list[str]:
    """The keys at which writes came without the encryption."""
    writes = [got for got in store.received if makes_an_object(got)]
    return [got.path for got in writes if not names_encryption(got, "aws:kms", KEY)]


def encrypted(bucket: Bucket) -> set[str | None]:
    """How the objects of a bucket are encrypted."""
    heads = (bucket.client.head_object(Bucket=bucket.name, Key=key) for key in bucket.sizes())
    return {head.get("SSEKMSKeyId") for head in heads}


def append(table: Table) -> None:
    load(table)


def replace(table: Table) -> None:
    load(table, mode="replace")


def merge(table: Table) -> None:
    rows = pa.table({"day": [1, 3], "value": [1, 4]})
    assert table.merge(rows, on=["day", "value"]).committed


def delete(table: Table) -> None:
    assert table.delete([("value", "=", 3)], apply=True).rows.deleted == 1


def compact(table: Table) -> None:
    load(table)
    assert table.compact(apply=True)


def copy(table: Table) -> None:
    other = Table(f"s3://{table.root.bucket}/copy", client=boto3.client("s3"))
    assert table.copy(other).files == 2
    assert other.encryption == DEMANDED


def purge_and_gc(table: Table) -> None:
    table.purge(apply=True)
    table.gc(0, apply=True)


def index(table: Table) -> None:
    assert table.write_index()


def doctor(table: Table) -> None:
    assert [problem.what for problem in table.doctor() if "encr" in problem.what] == []
    table.renew_facts()


def rebuild_heads(table: Table) -> None:
    lost = next(key for key in keys_of(table) if key.endswith("/heads/day=1.json"))
    boto3.client("s3").delete_object(Bucket=table.root.bucket, Key=lost)
    assert [head.partition for head in table.rebuild_heads(apply=True)] == ["day=1"]


def heartbeat_and_abort(table: Table) -> None:
    opened = fresh_of(table).open_job(JobSpec(DATA.schema))
    assert fresh_of(table).send_heartbeat(opened.job)
    table.abort(opened)


def fresh_of(table: Table) -> Table:
    return Table(table.root.url, client=boto3.client("s3"))


def keys_of(table: Table) -> list[str]:
    found: Any = boto3.client("s3").list_objects_v2(Bucket=table.root.bucket)
    return [item["Key"] for item in found["Contents"]]


VERBS = [append, replace, merge, delete, compact, copy, purge_and_gc, index, doctor]
VERBS += [rebuild_heads, heartbeat_and_abort]


@pytest.mark.parametrize("verb", VERBS, ids=lambda it: it.__name__)
def test_verb_by_a_new_process_writes_as_the_tables_record_says(
    verb: Callable[[Table], None], store: FaultyServer, s3_bucket: Bucket
) -> None:
    load(fresh(s3_bucket), files=KMS)
    assert refused(store) == []
    verb(fresh(s3_bucket))
    assert encrypted(s3_bucket) == {KEY}
    # Before its record is read: the open record of a job, and where another process writes, too.
    assert len(refused(store)) <= 2
    assert fresh(s3_bucket).verify() == []


def test_job_that_names_no_encryption_is_told_which_one_the_bucket_demands(
    behind: Behind, s3_bucket: Bucket
) -> None:
    behind(demanding_encryption("aws:kms"))
    for named, said in ((None, "names none"), ("SSE-S3", "names SSE-S3")):
        files = FileOptions(encryption=named)
        with pytest.raises(StoreRefusedError, match=said) as refusal:
            load(fresh(s3_bucket), files=files)
        assert "encryption='SSE-KMS'" in str(refusal.value)
    assert s3_bucket.keys() == []


def test_job_is_told_of_the_key_of_the_buckets_own_encryption(
    store: FaultyServer, s3_bucket: Bucket
) -> None:
    default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}
    s3_bucket.client.put_bucket_encryption(
        Bucket=s3_bucket.name,
        ServerSideEncryptionConfiguration={
            "Rules": [{"ApplyServerSideEncryptionByDefault": default}]
        },
    )
    with pytest.raises(StoreRefusedError, match="'SSE-KMS' and encryption_key='arn:aws:kms"):
        load(fresh(s3_bucket))
    (problem,) = problems(fresh(s3_bucket), "encryption demanded")
    assert KEY in problem.remedy


def test_right_that_is_missing_is_no_demand_for_encryption(
    behind: Behind, s3_bucket: Bucket
) -> None:
    behind(refusing(makes_an_object, denial(403, "AccessDenied", "Access Denied")))
    with pytest.raises(StoreRefusedError, match="lack a right"):
        load(fresh(s3_bucket))
    assert problems(fresh(s3_bucket), "encryption demanded") == []
    assert len(problems(fresh(s3_bucket), "right missing")) == 1


def problems(table: Table, what: str) -> list[Problem]:
    return [problem for problem in table.doctor() if problem.what == what]


def test_policy_that_came_after_the_table_is_named_by_doctor_and_met_by_its_remedy(
    behind: Behind, s3_bucket: Bucket
) -> None:
    load(fresh(s3_bucket))
    server = behind(demanding_encryption("AES256"))
    (problem,) = problems(fresh(s3_bucket), "encryption demanded")
    assert "names none" in problem.detail
    table = fresh(s3_bucket)
    assert table.set_encryption("SSE-S3").before is None
    assert table.encryption is None
    change = table.set_encryption("SSE-S3", apply=True)
    assert change.after == table.encryption == Encryption(Algorithm.SSE_S3)
    server.received.clear()
    load(fresh(s3_bucket))
    assert problems(fresh(s3_bucket), "encryption demanded") == []


def test_encryption_that_a_later_job_names_becomes_the_tables(
    behind: Behind, s3_bucket: Bucket
) -> None:
    load(fresh(s3_bucket))
    server = behind(demanding_encryption("aws:kms", KEY))
    load(fresh(s3_bucket), files=KMS)
    assert refused(server) == []
    assert fresh(s3_bucket).encryption == DEMANDED
    load(fresh(s3_bucket))
    assert fresh(s3_bucket).to_arrow().num_rows == 9


def test_files_of_another_writer_are_adopted_under_their_encryption(
    store: FaultyServer, s3_bucket: Bucket
) -> None:
    body = io.BytesIO()
    pq.write_table(DATA.select(["value"]), body)
    sealed = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": KEY}
    s3_bucket.client.put_object(
        Bucket=s3_bucket.name, Key="t/day=1/a.parquet", Body=body.getvalue(), **sealed
    )
    assert fresh(s3_bucket).adopt(apply=True).entries
    assert encrypted(s3_bucket) == {KEY}
    assert fresh(s3_bucket).to_arrow().num_rows == 3


def test_job_that_another_process_commits_writes_under_its_encryption(
    store: FaultyServer, s3_bucket: Bucket
) -> None:
    opening, committing = fresh(s3_bucket), fresh(s3_bucket)
    opened = opening.open_job(JobSpec(DATA.schema, partition_by=("day",), files=KMS))
    opened = pickle.loads(pickle.dumps(opened))
    writer = fresh(s3_bucket).task_writer(opened, 0, 0)
    writer.write(DATA)
    committing.commit(opened, [writer.close()], 1)
    assert refused(store) == []
    assert encrypted(s3_bucket) == {KEY}


def test_dead_job_is_recovered_by_a_process_that_knows_only_the_table(
    store: FaultyServer, s3_bucket: Bucket
) -> None:
    load(fresh(s3_bucket), files=KMS)
    opened = fresh(s3_bucket).open_job(JobSpec(DATA.schema))
    writer = fresh(s3_bucket).task_writer(opened, 0, 0)
    writer.write(DATA)
    writer.close()
    (recovered,) = fresh(s3_bucket).recover(patience=0)
    assert recovered.outcome is Outcome.ABORTED
    assert fresh(s3_bucket).to_arrow().num_rows == 3
    assert encrypted(s3_bucket) == {KEY}


def test_failure_of_a_run_is_put_on_record_under_the_encryption_of_its_job(
    store: FaultyServer, s3_bucket: Bucket
) -> None:
    table, owner = fresh(s3_bucket), Owner(task_id="load")
    error = InvalidInputError("no rows")
    tell_failure(error, table.root, "dag/run", owner, encryption=DEMANDED)
    failure = table.run(read_failure(table.root, "dag/run"))
    assert failure is not None
    assert encrypted(s3_bucket) == {KEY}


def test_failure_of_a_run_of_a_table_is_put_on_record_as_the_table_says(
    store: FaultyServer, s3_bucket: Bucket
) -> None:
    load(fresh(s3_bucket), files=KMS)
    table = fresh(s3_bucket)
    tell_failure(InvalidInputError("no rows"), table.root, "dag/run", Owner(task_id="load"))
    assert table.run(read_failure(table.root, "dag/run")) is not None


def test_default_encryption_becomes_that_of_a_new_table(
    store: FaultyServer, s3_bucket: Bucket
) -> None:
    table = fresh(s3_bucket)
    table.driver.encrypt_by_default(DEMANDED)
    assert isinstance(table.run(Put("elsewhere/record.json", b"{}")), Done)
    load(table)
    assert refused(store) == []
    assert fresh(s3_bucket).encryption == DEMANDED
    later = fresh(s3_bucket)
    later.driver.encrypt_by_default(Encryption(Algorithm.SSE_S3))
    load(later)
    assert later.encryption == DEMANDED
    assert encrypted(s3_bucket) == {KEY}


def test_default_encryption_becomes_that_of_a_table_that_names_none(
    behind: Behind, s3_bucket: Bucket
) -> None:
    load(fresh(s3_bucket))
    server = behind(demanding_encryption("aws:kms", KEY))
    table = fresh(s3_bucket)
    table.driver.encrypt_by_default(DEMANDED, table.root.prefix)
    load(table)
    assert refused(server) == []
    assert fresh(s3_bucket).encryption == DEMANDED


@pytest.mark.parametrize(
    "place", ["s3://fast--use1-az4--x-s3/lake", "s3://lake/b?endpoint=http://c"]
)
def test_data_root_of_another_kind_of_store_encrypts_by_itself(place: str) -> None:
    assert FastRoot.parse(place).encrypts_by_itself
    assert not FastRoot.parse("s3://fast/lake?profile=other").encrypts_by_itself


def test_data_root_at_another_store_is_left_to_its_buckets_own_encryption(
    s3_bucket: Bucket, behind: Behind
) -> None:
    server = behind(lambda got, pass_on: pass_on())
    root = f"s3://{s3_bucket.name}/fast?endpoint={server.endpoint}"
    table = DeltaTable(f"s3://{s3_bucket.name}/t", boto3.client("s3"))
    load(table, files=KMS, data_root=root)
    sealed = {got.path: got.headers.get(SSE) for got in server.received if makes_an_object(got)}
    assert {said for path, said in sealed.items() if "/fast/" in path} == {None}
    assert {said for path, said in sealed.items() if "/fast/" not in path} == {"aws:kms"}
    assert table.scan().count() == 3


def test_refused_write_is_sent_again_under_its_condition(
    store: FaultyServer, s3_bucket: Bucket
) -> None:
    load(fresh(s3_bucket), files=KMS)
    key = "t/_zero_rename/note.json"
    first = fresh(s3_bucket).run(Put(key, b"{}", if_none_match=True))
    assert isinstance(first, Done)
    late = fresh(s3_bucket).run(Put(key, b"{}", if_none_match=True))
    assert late == Refused("PreconditionFailed")


def test_write_that_names_its_encryption_is_sent_once(
    store: FaultyServer, s3_bucket: Bucket
) -> None:
    load(fresh(s3_bucket), files=KMS)
    store.received.clear()
    named = ObjectSettings(encryption=Encryption(Algorithm.SSE_S3))
    with pytest.raises(StoreRefusedError, match="lack a right"):
        fresh(s3_bucket).run(PutFile("t/_zero_rename/a", b"", named))
    assert len(store.received) == 1


def test_table_without_encryption_sends_none(s3_bucket: Bucket, behind: Behind) -> None:
    server = behind(lambda got, pass_on: pass_on())
    load(fresh(s3_bucket))
    load(fresh(s3_bucket), mode="replace")
    assert [got.path for got in server.received if SSE in got.headers] == []
    assert b"encryption" not in s3_bucket.read("t/_zero_rename/table.json")


def test_encryption_costs_no_request(s3_bucket: Bucket, behind: Behind) -> None:
    server = behind(lambda got, pass_on: pass_on())
    sent = {}
    for name, files in (("plain", FileOptions()), ("sealed", KMS)):
        for turn in ("first job", "later job"):
            server.received.clear()
            load(fresh(s3_bucket, name), files=files if turn == "first job" else FileOptions())
            sent[name, turn] = sorted(got.method for got in server.received)
    assert sent["plain", "first job"] == sent["sealed", "first job"]
    assert sent["plain", "later job"] == sent["sealed", "later job"]


def test_encryption_taken_back_leaves_it_to_the_bucket(s3_bucket: Bucket) -> None:
    load(fresh(s3_bucket), files=KMS)
    fresh(s3_bucket).set_encryption(None, apply=True)
    load(fresh(s3_bucket))
    assert fresh(s3_bucket).encryption is None
    assert encrypted(s3_bucket) == {KEY, None}
