"""Uploads and the jobs that lay claim to them; a listing of uploads says nothing of that."""

from __future__ import annotations

import pytest

from support.s3a_jobs import JOB, OTHER, WRITE
from zero_rename.committer.s3.requests import ListedUpload
from zero_rename.s3a.hadoop.upload_owners import UploadOwners, staging_job

KEY = f"wh/flights/day=1/part-00000-{WRITE}.c000.snappy.parquet"
NAMELESS = "wh/flights/day=1/part-00000.parquet"
Claim = tuple[str, frozenset[tuple[str, str]], frozenset[str]]


def owner(key: str, *claims: Claim, upload_id: str = "u") -> int | None:
    return UploadOwners(claims).owner_of(ListedUpload(key, upload_id, 0.0))


def claim(uuid: str = "", uploads: tuple[str, ...] = (), keys: tuple[str, ...] = ()) -> Claim:
    return (uuid, frozenset((key, "u") for key in uploads), frozenset(keys))


def test_a_pending_set_counts_more_than_a_key() -> None:
    assert owner(KEY, claim(JOB, keys=(KEY,)), claim(OTHER, uploads=(KEY,))) == 1
    assert owner(KEY, claim(JOB, keys=(KEY,)), claim(OTHER, uploads=(KEY,)), upload_id="v") == 0


def test_a_key_counts_more_than_a_name() -> None:
    same_write = KEY.replace("00000-", "00001-")
    assert owner(KEY, claim(JOB, keys=(same_write,)), claim(OTHER, keys=(KEY,))) == 1


@pytest.mark.parametrize("uuid", [JOB, JOB.upper()])
def test_a_name_tells_by_the_write_or_by_the_job(uuid: str) -> None:
    same_write = KEY.replace("00000-", "00001-")
    assert owner(KEY, claim(OTHER), claim(JOB, keys=(same_write,))) == 1
    assert owner(NAMELESS.replace(".parquet", f"-{JOB}.parquet"), claim(OTHER), claim(uuid)) == 1


def test_what_two_jobs_claim_is_nobodys() -> None:
    assert owner(KEY, claim(JOB, keys=(KEY,)), claim(OTHER, keys=(KEY,))) is None
    assert owner(KEY, claim(JOB, uploads=(KEY,)), claim(OTHER, uploads=(KEY,), keys=(KEY,))) is None


def test_what_no_job_claims_is_nobodys() -> None:
    assert owner(NAMELESS, claim(JOB), claim("")) is None


def test_the_last_uuid_in_a_name_is_a_staging_committers() -> None:
    assert staging_job(f"wh/flights/part-00000-{WRITE}-{JOB}.c000.snappy.parquet") == JOB
    assert staging_job(NAMELESS) == ""
