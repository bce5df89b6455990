"""Readers of the S3A committers' records: on files that real committers wrote, and fuzzed.

The files in ``data/`` are as Hadoop 3.5.0's committers wrote them; ``real/`` makes them anew. 500
inputs a parser and strategy, 3,000 in all.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.recorded import recorded
from zero_rename.committer.errors import RecordDamagedError
from zero_rename.s3a.hadoop.commit_files import JobSummary, PendingCommit, PendingSet

UUID_FORM = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
UUID = "0b1c2d3e-0000-4000-8000-00000000000a"
COMMIT: dict[str, Any] = {
    "version": 2,
    "filename": None,
    "uri": "s3a://bucket/flights/day=1/part-00000.parquet",
    "uploadId": "upload-1",
    "bucket": "bucket",
    "destinationKey": "flights/day=1/part-00000.parquet",
    "created": 1700000000000,
    "saved": 1700000000001,
    "date": "Tue Nov 14 22:13:20 UTC 2023",
    "jobId": UUID,
    "taskId": "attempt_202311142213_0001_m_000000_0",
    "text": "",
    "etags": [{"etag": '"5d41"', "checksumAlgorithm": None, "checksum": None}],
    "extraData": {},
    "iostatistics": {"counters": {}},
    "length": 5,
}
SET: dict[str, Any] = {
    "version": 3,
    "jobId": UUID,
    "commits": [COMMIT, COMMIT | {"destinationKey": "flights/day=2/part-00000.parquet"}],
    "extraData": {"task.attempt.id": "attempt_202311142213_0001_m_000000_0"},
    "iostatistics": {"counters": {}},
}
SUMMARY: dict[str, Any] = {
    "name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1",
    "success": False,
    "timestamp": 1700000000000,
    "committer": "magic",
    "jobId": UUID,
    "jobIdSource": "fs.s3a.committer.uuid",
    "diagnostics": {"stage": "commit", "exception": "java.io.IOException", "stacktrace": "at"},
    "filenames": [],
    "iostatistics": {"counters": {"committer_commits_completed": 3}},
    "state": None,
    "stage": None,
}
PARSERS: dict[str, tuple[Callable[[bytes, str], Any], dict[str, Any]]] = {
    ".pendingset": (PendingSet.parse, SET),
    "summary": (JobSummary.parse, SUMMARY),
}


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def pending(**changes: Any) -> PendingCommit:
    """One file's, as it is read in a set."""
    return PendingSet.parse(encoded({"version": 3, "commits": [COMMIT | changes]}), "k").commits[0]


class TestPending:
    def test_etags_as_objects(self) -> None:
        # S3A conformance 34
        read = pending()
        assert read.etags == ("5d41",)
        assert (read.bucket, read.key, read.upload_id, read.length) == (
            "bucket",
            "flights/day=1/part-00000.parquet",
            "upload-1",
            5,
        )

    def test_checksums_beside_etags_are_read(self) -> None:
        parts = [
            {"etag": '"a"', "checksumAlgorithm": "CRC32", "checksum": "XHxvCQ=="},
            {"etag": "b", "checksumAlgorithm": None, "checksum": None},
            "c",
        ]
        found = PendingSet.parse(encoded(SET | {"commits": [COMMIT | {"etags": parts}]}), "k")
        assert found.commits[0].etags == ("a", "b", "c")
        assert found.commits[0].checksums == ("CRC32 XHxvCQ==", "", "")

    def test_etags_as_strings(self) -> None:
        # S3A conformance 34
        read = pending(etags=["5d41", '"6e52"'])
        assert read.etags == ("5d41", "6e52")

    def test_members_it_does_not_know_are_passed_over(self) -> None:
        assert pending(later=[1]) == pending()

    @pytest.mark.parametrize(
        ("member", "value", "field"),
        [
            ("version", 1, "version"),
            ("version", 3, "version"),
            ("bucket", "", "bucket"),
            ("destinationKey", "", "destinationKey"),
            ("uploadId", "", "uploadId"),
            ("length", -1, "length"),
            ("etags", None, "etags"),
            ("etags", ["5d41", ""], "etags[1]"),
            ("etags", [{"etag": ""}], "etags[0].etag"),
            ("etags", [{"checksum": "x"}], "etags[0].etag"),
            ("etags", [7], "etags[0]"),
        ],
    )
    def test_what_hadoop_refuses_is_refused_by_name(
        self, member: str, value: Any, field: str
    ) -> None:
        # S3A conformance 54
        with pytest.raises(RecordDamagedError) as caught:
            pending(**{member: value})
        assert (caught.value.field, caught.value.key) == (f"commits[0].{field}", "k")


class TestPendingSet:
    def test_reads_job_attempt_and_commits(self) -> None:
        # S3A conformance 34, 35
        read = PendingSet.parse(encoded(SET), "k")
        assert read.job == UUID
        assert [commit.key[-29:] for commit in read.commits] == [
            "ghts/day=1/part-00000.parquet",
            "ghts/day=2/part-00000.parquet",
        ]

    def test_a_later_version_says_so(self) -> None:
        with pytest.raises(RecordDamagedError, match="Upgrade"):
            PendingSet.parse(encoded(SET | {"version": 4}), "k")

    def test_one_destination_twice_is_refused(self) -> None:
        # S3A conformance 54
        with pytest.raises(RecordDamagedError) as caught:
            PendingSet.parse(encoded(SET | {"commits": [COMMIT, COMMIT]}), "k")
        assert caught.value.field == "commits[0].destinationKey"

    def test_a_set_of_a_task_without_rows(self) -> None:
        # S3A conformance 30
        read = PendingSet.parse(encoded(SET | {"commits": [], "extraData": None}), "k")
        assert read.commits == ()


class TestJobSummary:
    def test_a_failed_job_says_where_and_why(self) -> None:
        # S3A conformance 107
        read = JobSummary.parse(encoded(SUMMARY), "k")
        assert not read.marker.success
        assert (read.stage, read.exception) == ("commit", "java.io.IOException")
        assert (read.files, read.bytes) == (3, None)

    def test_nothing_but_a_name(self) -> None:
        read = JobSummary.parse(encoded({"name": SUMMARY["name"]}), "k")
        assert read.marker.success
        assert (read.files, read.stage) == (None, "")

    def test_an_empty_marker_is_the_classic_committers(self) -> None:
        # S3A conformance 19
        with pytest.raises(RecordDamagedError, match="classic rename committer"):
            JobSummary.parse(b"", "k")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
fuzzed = settings(max_examples=150, derandomize=True)


@pytest.mark.parametrize("name", list(PARSERS))
class TestFuzzed:
    """Whatever the bytes, the answer is a record or RecordDamagedError."""

    @fuzzed
    @given(body=st.binary(max_size=64) | JSON.map(encoded))
    def test_anything(self, name: str, body: bytes) -> None:
        with contextlib.suppress(RecordDamagedError):
            PARSERS[name][0](body, "k")

    @fuzzed
    @given(cut=st.integers(min_value=0), flip=st.binary(max_size=1))
    def test_truncated_or_flipped(self, name: str, cut: int, flip: bytes) -> None:
        parse, document = PARSERS[name]
        body = encoded(document)
        place = cut % len(body)
        with contextlib.suppress(RecordDamagedError):
            parse(body[:place] + flip + (body[place + 1 :] if flip else b""), "k")

    @settings(fuzzed, max_examples=500)
    @given(data=st.data())
    def test_a_member_that_is_something_else(self, name: str, data: st.DataObject) -> None:
        parse, document = PARSERS[name]
        copy = json.loads(encoded(document))
        target = copy
        while True:
            here = list(target) if isinstance(target, dict) else list(range(len(target)))
            last = data.draw(st.sampled_from(here))
            inner = target[last]
            if not inner or not isinstance(inner, dict | list) or data.draw(st.booleans()):
                break
            target = inner
        target[last] = data.draw(JSON)
        with contextlib.suppress(RecordDamagedError):
            parse(encoded(copy), "k")


class TestRecorded:
    """Files of Hadoop 3.5.0's committers; the tests with the real jars keep them current."""

    @pytest.mark.parametrize("name", ["magic.pendingset", "directory.pendingset"])
    def test_pending_sets(self, name: str) -> None:
        # S3A conformance 34, 35
        read = PendingSet.parse(recorded(name), name)
        if name.startswith("magic"):
            assert UUID_FORM.fullmatch(read.job)
        else:
            assert read.job == ""
        assert len(read.commits) == 2
        for commit in read.commits:
            assert commit.key.startswith("tables/")
            assert "__magic" not in commit.key
            assert commit.length > 400
            assert commit.created_ms > 1_700_000_000_000
            assert [len(etag) for etag in commit.etags] == [32]

    @pytest.mark.parametrize("committer", ["magic", "directory", "partitioned"])
    def test_markers(self, committer: str) -> None:
        # S3A conformance 2, 19, 20, 29
        read = JobSummary.parse(recorded(f"{committer}.success"), "k")
        assert read.marker.committer == committer
        assert read.marker.manifest is None
        assert read.files == len(read.marker.filenames)
        assert (read.bytes or 0) > 800
        assert (read.stage, read.exception) == ("", "")
