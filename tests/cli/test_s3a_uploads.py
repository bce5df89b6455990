"""``zero-rename s3a-uploads``, on a real server: what users of ``hadoop s3guard uploads`` know."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from support.s3a_jobs import MagicJob
from zero_rename.cli import app
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.store.driver import connect


@pytest.fixture
def uploads(s3_bucket: Any) -> list[str]:
    """Three below one table and one below another, whose name begins alike."""
    driver = connect(s3_bucket.name)
    keys = []
    for table, count in (("wh/flights", 3), ("wh/flights2", 1)):
        job = MagicJob(driver.perform, TableRoot(s3_bucket.name, table))
        keys += [job.upload(job.name(task)).key for task in range(count)]
    return keys


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["s3a-uploads", *arguments])


def url(s3_bucket: Any, folder: str = "wh/flights", scheme: str = "s3") -> str:
    return f"{scheme}://{s3_bucket.name}/{folder}"


@pytest.mark.parametrize("spelling", [(), ("--list",), ("-list",)])
def test_they_are_listed(uploads: list[str], s3_bucket: Any, spelling: tuple[str, ...]) -> None:
    result = invoke(*spelling, url(s3_bucket, scheme="s3a"))
    assert result.exit_code == 0, result.output
    assert all(key in result.stdout for key in uploads[:3])
    assert uploads[3] not in result.stdout
    assert "Total 3 uploads found." in result.stdout
    found = json.loads(invoke(url(s3_bucket, ""), "--json").stdout)
    assert sorted(one["key"] for one in found) == sorted(uploads)


@pytest.mark.parametrize(("count", "code"), [("3", 0), ("4", 46)])
def test_they_are_counted(uploads: list[str], s3_bucket: Any, count: str, code: int) -> None:
    result = invoke("-expect", count, url(s3_bucket))
    assert result.exit_code == code
    assert result.stdout == ""
    assert ("Expected 4 uploads, found 3" in result.stderr) == bool(code)


def test_nothing_is_aborted_unless_it_is_forced(uploads: list[str], s3_bucket: Any) -> None:
    result = invoke("-abort", url(s3_bucket))
    assert result.exit_code == 0
    assert "Nothing was aborted" in result.stderr
    assert len(s3_bucket.uploads()) == 4


@pytest.mark.parametrize("force", ["--force", "-force", "--apply"])
def test_they_are_aborted(uploads: list[str], s3_bucket: Any, force: str) -> None:
    result = invoke("-abort", force, url(s3_bucket))
    assert result.exit_code == 0, result.output
    assert "Total 3 uploads deleted." in result.stdout
    assert s3_bucket.uploads() == [uploads[3]]


@pytest.mark.parametrize(
    "arguments",
    [("-list", "-abort"), ("-abort", "-expect", "1"), ("-list", "-expect", "1")],
)
def test_one_thing_at_a_time(s3_bucket: Any, arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments, url(s3_bucket))
    assert result.exit_code == 40
    assert "Give one of --list, --abort and --expect" in result.stderr


@pytest.mark.parametrize("path", ["wh/flights", "hdfs://nn/wh", "s3:///wh"])
def test_paths_that_are_none(path: str) -> None:
    assert invoke(path).exit_code == 40


def test_a_bucket_that_is_not_there(s3_bucket: Any) -> None:
    assert invoke(f"s3://{s3_bucket.name}-none/wh").exit_code == 255
