from __future__ import annotations

import pytest

from zero_rename.committer.format.layout import TableRoot
from zero_rename.s3a.hadoop import job_traces as layout

ROOT = TableRoot("bucket", "wh/flights")
UUID = "6f1d2c3b-4a59-4e8f-9b7a-0c1d2e3f4a5b"
TREE = f"wh/flights/__magic_job-{UUID}/"
ATTEMPT = f"{TREE}job-{UUID}/00/"


def test_a_pending_set_is_directly_in_the_attempts_directory() -> None:
    path = layout.parse(f"{ATTEMPT}task_202311142213_0001_m_000003.pendingset")
    assert path is not None
    assert (path.tree, path.destination, path.job) == (TREE, "wh/flights", UUID)
    assert path.is_set


@pytest.mark.parametrize(
    "rest", ["tasks/attempt_1/__base/x.pendingset", "x.pending", "deeper/task_1.pendingset", ""]
)
def test_what_is_no_pending_set(rest: str) -> None:
    # S3A conformance 83
    path = layout.parse(ATTEMPT + rest)
    assert path is not None
    assert not path.is_set


@pytest.mark.parametrize(
    ("path", "final"),
    [
        ("tasks/attempt_1/__base/day=1/a.parquet.pending", "wh/flights/day=1/a.parquet"),
        # The last __base counts, and without one the name alone.
        ("tasks/attempt_1/__base/x/__base/a.parquet.pending", "wh/flights/a.parquet"),
        ("tasks/attempt_1/day=1/a.parquet.pending", "wh/flights/a.parquet"),
        ("tasks/attempt_1/__base/day=1/a.parquet", None),
        ("task_1.pendingset", None),
    ],
)
def test_the_final_key_of_a_pending_file(path: str, final: str | None) -> None:
    # S3A conformance 81, 82
    parsed = layout.parse(ATTEMPT + path)
    assert parsed is not None
    assert parsed.final_key == final


def test_a_job_directory_of_another_name_is_no_jobs() -> None:
    path = layout.parse(f"{TREE}job-{UUID[:-1]}c/00/task_1.pendingset")
    assert path is not None
    assert path.job == UUID
    assert not path.is_set


@pytest.mark.parametrize("name", ["day=1/a.parquet", "__magical/x", "__magic/job-1/00/x"])
def test_what_is_not_magic(name: str) -> None:
    # S3A conformance 84
    key = f"wh/flights/{name}"
    assert not layout.is_magic(key)
    assert layout.parse(key) is None


def test_uuids_in_names_are_those_of_the_last_component() -> None:
    other = "AAAAAAAA-bbbb-4ccc-8ddd-eeeeeeeeeeee"
    key = f"wh/{UUID}/part-00000-{other}.c000-{UUID}.snappy.parquet"
    assert layout.uuids_in_name(key) == (other.lower(), UUID)


@pytest.mark.parametrize(
    ("bucket", "key", "why"),
    [
        ("elsewhere", "wh/flights/a", "bucket"),
        ("bucket", "wh/flights2/a", "outside"),
        ("bucket", "wh/flights", "outside"),
        ("bucket", "secret/a", "outside"),
        ("bucket", "wh/flights/../secret", "component"),
        ("bucket", "wh/flights//a", "component"),
        ("bucket", "wh/flights/", "component"),
        ("bucket", "wh/flights/_zero_rename/heads/day=1.json", "records"),
        ("bucket", f"{TREE}job-{UUID}/00/x.pendingset", "records"),
        ("bucket", "wh/flights/_SUCCESS", "marker"),
        ("bucket", "wh/flights/day=1/_SUCCESS", "marker"),
        ("bucket", "wh/flights/a\nb", "control"),
        ("bucket", "wh/flights/a\x1b[2Jb", "control"),
        ("bucket", "wh/flights/a\u2028b", "control"),
    ],
)
def test_what_a_pending_set_may_not_name(bucket: str, key: str, why: str) -> None:
    # S3A conformance 81
    refused = layout.why_outside(bucket, key, ROOT, "wh/flights")
    assert refused is not None
    assert why in refused
    assert refused.isprintable()


@pytest.mark.parametrize("value", ["東京\u3000都", "New\xa0York", "\U0001f468\u200d\U0001f469"])
def test_blanks_and_joiners_in_a_partitions_value_may_be_named(value: str) -> None:
    key = f"wh/flights/city={value}/a.parquet"
    assert layout.why_outside("bucket", key, ROOT, "wh/flights") is None


def test_what_it_may_name() -> None:
    assert layout.why_outside("bucket", "wh/flights/day=1/a.parquet", ROOT, "wh/flights") is None
    folder = "wh/flights/day=1"
    assert layout.why_outside("bucket", "wh/flights/day=2/a", ROOT, folder) is not None
