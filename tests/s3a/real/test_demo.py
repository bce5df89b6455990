"""The demonstration by Hadoop's committers, but for its crash: a day, and the day once more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from demo.hadoop import CORRECTED, begun
from demo.report import RunReport
from demo.store import store
from demo.workspace import workspace
from zero_rename.s3a.hadoop.settings import Committer

pytestmark = [pytest.mark.slow, pytest.mark.airflow, pytest.mark.timeout(900)]


@pytest.mark.of_the_jars
@pytest.mark.parametrize("committer", list(Committer))
def test_a_day_and_its_correction_are_the_csv_s(
    tmp_path: Path, committer: Committer, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {name: it for name, it in os.environ.items() if not name.startswith(("S3_", "AWS_"))}
    with (
        workspace(tmp_path / "demo") as folders,
        store(folders.logs, environ) as s3,
        begun(committer, folders, s3, RunReport()) as (story, worker, _),
    ):
        story.load(worker, CORRECTED, "2 February, a DAG run")
        story.correct(worker, CORRECTED)
        assert story.check() == []
    said = capsys.readouterr().out
    assert said.count(f"_SUCCESS: committer {committer}, job ") == 2
    assert "680 rows in 1 partitions read back" in said
    assert "requests that copied an object, as a rename does: 0" in said
