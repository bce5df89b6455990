"""Folders of a submitting machine that others may enter."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from zero_rename.orchestration.submit.open_folders import BUFFER_KEY, is_open, warn_of_open_folders
from zero_rename.s3a.hadoop.effective_settings import DAG_CONF, effective
from zero_rename.s3a.hadoop.settings import STAGING_KEY, Committer


def warned(
    caplog: pytest.LogCaptureFixture, committer: Committer = Committer.DIRECTORY, **said: str
) -> str:
    caplog.clear()
    names = {"staging": STAGING_KEY, "buffer": BUFFER_KEY, "default": "fs.defaultFS"}
    conf = {f"spark.hadoop.{names[name]}": value for name, value in said.items()}
    warn_of_open_folders(committer, effective([(DAG_CONF, conf)]))
    return caplog.text


@pytest.fixture
def folders() -> Iterator[tuple[str, str]]:
    """One that others may enter, and one that they may not. Pytest's own folders are closed."""
    with tempfile.TemporaryDirectory() as made:
        base, closed = Path(made), Path(made, "closed")
        base.chmod(0o755)
        closed.mkdir()
        closed.chmod(0o700)
        yield str(base / "open"), str(closed / "staging")


def test_folder_that_others_may_enter_is_warned_of_with_both_settings(
    folders: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    others, mine = folders
    text = warned(caplog, staging=f"file://{others}", buffer=mine)
    assert f"{STAGING_KEY} is {others}, which other users" in text
    assert f"set spark.hadoop.{STAGING_KEY} and spark.hadoop.{BUFFER_KEY}" in text
    assert f"{BUFFER_KEY} is" not in text
    assert f"{BUFFER_KEY} is {others}," in warned(caplog, staging=mine, buffer=f"{mine},{others}")


def test_closed_folder_is_not_warned_of(
    folders: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert warned(caplog, staging=folders[1], buffer=folders[1]) == ""


def test_folder_elsewhere_is_not_warned_of(
    folders: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    others, mine = folders
    assert warned(caplog, staging=others, buffer=mine, default="hdfs://namenode") == ""
    assert warned(caplog, staging="hdfs://namenode/tmp", buffer="${user.home}/s3a") == ""
    assert warned(caplog, Committer.MAGIC, staging=others, buffer=mine) == ""


def test_closed_directory_above_closes_what_lies_in_it(folders: tuple[str, str]) -> None:
    inside = Path(folders[1])
    inside.mkdir(exist_ok=True)
    inside.chmod(0o777)
    assert not is_open(inside)
    inside.parent.chmod(0o710)
    assert is_open(inside)
