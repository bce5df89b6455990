"""Looking at what staging committers keep on local disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from zero_rename.committer.errors import InvalidInputError
from zero_rename.s3a.hadoop.staging_dir import staging_left

JOB = "0b1c2d3e-0000-4000-8000-00000000000a"


@pytest.fixture
def left(tmp_path: Path) -> Path:
    tree = tmp_path / "user" / JOB / "staging-uploads" / "_temporary" / "0"
    tree.mkdir(parents=True)
    path = tree / "task_202611211104291428547997765390172_0000_m_000001"
    path.write_bytes(b"{}")
    return path


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_jobs_files_are_found(tmp_path: Path, left: Path, form: str) -> None:
    # S3A conformance 26
    assert staging_left(form.format(tmp_path), JOB) == (left,)


def test_other_jobs_files_are_not(tmp_path: Path, left: Path) -> None:
    assert staging_left(str(tmp_path), JOB.replace("a", "b")) == ()
    assert staging_left(str(tmp_path / "missing"), JOB) == ()


@pytest.mark.parametrize("folder", ["tmp/staging", "hdfs://nn/tmp", "s3a://bucket/tmp", ""])
def test_what_cannot_be_seen_says_so(folder: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be seen from here"):
        staging_left(folder, JOB)


@pytest.mark.parametrize("job", ["", "../x"])
def test_a_job_is_one_folder(tmp_path: Path, job: str) -> None:
    with pytest.raises(InvalidInputError, match="UUID"):
        staging_left(str(tmp_path), job)
