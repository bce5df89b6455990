"""The commands about jobs of the S3A committers, on a real server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from conftest import Behind

from support.command_line import as_json, invoke
from support.faulty_server import FaultyServer, Received, Reply, s3_error
from support.refusing_store import demanding_encryption
from support.s3a_jobs import JOB, MagicJob, StagingJob
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.backoff import Backoff
from zero_rename.committer.store.driver import connect
from zero_rename.committer.store.encrypted_writes import names_none, with_encryption
from zero_rename.committer.store.encryption import Algorithm, Encryption

pytestmark = pytest.mark.memory_s3


@pytest.fixture
def job(s3_bucket: Any) -> MagicJob:
    """Died with one of four files written."""
    root = TableRoot(s3_bucket.name, "wh/flights")
    made = MagicJob(connect(s3_bucket.name).perform, root).begin()
    made.task(0)
    made.task(1)
    made.complete(made.files[0])
    return made


def test_jobs_are_listed(job: MagicJob, s3_bucket: Any) -> None:
    # S3A conformance 104
    s3_bucket.counter.reset()
    (found,) = as_json("s3a-jobs", job.root.url)
    assert (found["job"], found["state"], found["tasks"]) == (JOB, "live", 2)
    (found,) = as_json("s3a-jobs", job.root.url, "--patience", "0")
    assert (found["files"], found["written"], found["outstanding"]) == (4, 1, 3)
    assert JOB in invoke("s3a-jobs", job.root.url).stdout
    assert set(s3_bucket.counter.counts()) <= {
        "ListObjects",
        "ListMultipartUploads",
        "GetObject",
        "HeadObject",
    }


def test_a_job_is_reported_then_settled(job: MagicJob, s3_bucket: Any) -> None:
    url = job.root.url
    (left,) = as_json("s3a-recover", url, "--apply")
    assert left["outcome"] == "left"
    (would,) = as_json("s3a-recover", url, "--dead", JOB)
    assert would["outcome"] == "would-roll-forward"
    assert len(s3_bucket.uploads()) == 3
    (done,) = as_json("s3a-recover", url, "--dead", JOB, "--apply")
    assert (done["outcome"], done["completed"], done["marker"]) == ("rolled-forward", 3, "written")
    assert s3_bucket.uploads() == []
    assert [k for k in s3_bucket.keys("wh/flights/day=") if "__magic" not in k] == job.keys
    assert as_json("s3a-recover", url, "--apply") == []


@pytest.mark.usefixtures("s3_server")
def test_job_in_a_bucket_that_demands_encryption_is_rolled_forward(
    s3_bucket: Any, behind: Behind
) -> None:
    """By a process that knows of the encryption only by the objects that it reads."""
    root, perform = TableRoot(s3_bucket.name, "wh/flights"), connect(s3_bucket.name).perform
    encryption = Encryption(Algorithm.SSE_KMS, "alias/lake")
    made = MagicJob(lambda request: perform(encrypted(request, encryption)), root).begin()
    made.task(0)
    made.task(1)
    made.complete(made.files[0])
    behind(demanding_encryption("aws:kms", "alias/lake"))
    (done,) = as_json("s3a-recover", root.url, "--dead", JOB, "--apply")
    assert (done["outcome"], done["completed"], done["marker"]) == ("rolled-forward", 3, "written")
    marker = s3_bucket.client.head_object(Bucket=s3_bucket.name, Key="wh/flights/_SUCCESS")
    assert marker["ServerSideEncryption"] == "aws:kms"


@pytest.mark.usefixtures("s3_server")
def test_upload_with_checksums_is_completed_by_them(s3_bucket: Any, behind: Behind) -> None:
    """S3 refuses a completion without those that an upload was begun with."""
    root = TableRoot(s3_bucket.name, "wh/flights")
    made = MagicJob(connect(s3_bucket.name).perform, root).begin()
    files = [made.upload(made.name(0, day)) for day in ("day=1", "day=2")]
    commits = [file.commit(root.bucket, JOB, "") for file in files]
    said = {"checksumAlgorithm": "CRC32", "checksum": "LvjZFg=="}
    for commit in commits:
        commit["etags"] = [{**it, **said} for it in commit["etags"]]
    made.pending_set(0, commits)
    made.complete(files[0])

    def answer(got: Received, pass_on: Callable[[], Reply]) -> Reply:
        completes = got.method == "POST" and "uploadId" in got.path
        bare = completes and got.body.count(b"<ChecksumCRC32>LvjZFg==<") != got.body.count(
            b"<Part>"
        )
        return s3_error(400, "InvalidRequest") if bare else pass_on()

    behind(answer)
    (done,) = as_json("s3a-recover", root.url, "--dead", JOB, "--apply")
    assert (done["outcome"], done["completed"]) == ("rolled-forward", 1)


def encrypted(request: Any, encryption: Encryption) -> Any:
    """As S3A sends it by its own setting."""
    return with_encryption(request, encryption) if names_none(request) else request


def test_a_staging_committers_job(s3_bucket: Any, tmp_path: Path) -> None:
    """Killed in its commit with both pending sets on disk: without them, nothing is done to it."""
    root = TableRoot(s3_bucket.name, "wh/flights")
    made = StagingJob(connect(s3_bucket.name).perform, root, staging=tmp_path).begin()
    made.task(0)
    made.task(1)
    made.complete(made.files[0])
    arguments = ("s3a-recover", root.url, "--dead", JOB, "--apply")
    (found,) = as_json(*arguments, code=1)
    assert found["outcome"] == "needs-decision"
    assert len(s3_bucket.uploads()) == 3
    (listed,) = as_json("s3a-jobs", root.url, "--staging", str(tmp_path))
    assert (listed["left"], listed["files"], listed["state"]) == ("staging", 4, "live")
    (done,) = as_json(*arguments, "--staging", str(tmp_path))
    assert (done["outcome"], done["completed"]) == ("rolled-forward", 3)
    assert s3_bucket.uploads() == []
    assert s3_bucket.keys("wh/flights/day=") == made.keys
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_why_is_printed(job: MagicJob) -> None:
    printed = invoke("s3a-recover", job.root.url, "--patience", "0", "--roll-back").stdout
    assert "would-roll-back" in printed
    assert "the caller wants it rolled back" in printed


def test_what_is_refused_is_told_by_the_exit_code(job: MagicJob, s3_bucket: Any) -> None:
    job.pending_set(7, [job.files[0].commit("elsewhere", JOB, "")])
    (found,) = as_json("s3a-recover", job.root.url, "--dead", JOB, "--apply", code=1)
    assert found["outcome"] == "refused"
    assert "names the bucket 'elsewhere'" in found["reason"]
    assert len(s3_bucket.uploads()) == 3


@pytest.mark.usefixtures("s3_server")
def test_what_is_not_known_is_told_by_the_exit_code(
    job: MagicJob, s3_bucket: Any, s3_env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store does not say whether an upload is complete."""
    monkeypatch.setattr("zero_rename.s3a.recovery.execute._TRIES", Backoff(5, 0.01))
    lost = job.files[3]

    def answer(got: Received, pass_on: Callable[[], Reply]) -> Reply:
        completes = got.method == "POST" and lost.key in unquote(urlsplit(got.path).path)
        return s3_error(500, "InternalError") if completes else pass_on()

    arguments = ("s3a-recover", job.root.url, "--dead", JOB, "--apply")
    with FaultyServer(answer, s3_env.endpoint) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        (found,) = as_json(*arguments, code=1)
    assert found["outcome"] == "unknown"
    assert f"1 file is unknown, as '{lost.key}'" in found["reason"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_env.endpoint)
    (found,) = as_json(*arguments)
    assert found["outcome"] == "rolled-forward"
    assert s3_bucket.uploads() == []


def test_a_file_of_somebody_else_is_told(job: MagicJob, s3_bucket: Any) -> None:
    made = job.files[0]
    s3_bucket.put(made.key, b"x")
    result = invoke("s3a-recover", job.root.url, "--dead", JOB, "--apply")
    assert f"left {made.key}" in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--roll-back", "--roll-forward"),
        ("--tasks", "3"),
        ("--folder", "../x"),
        ("--staging", "tmp/staging"),
        ("--patience", "-1"),
    ],
)
def test_options_that_cannot_be_right(job: MagicJob, options: tuple[str, ...]) -> None:
    assert invoke("s3a-recover", job.root.url, *options).exit_code == 2
    assert invoke("s3a-jobs", "flights").exit_code == 2
