"""What dead drivers left outside the store: what is reported, what is removed, and what is not
touched. The names are those that a killed driver of Hadoop 3.5 left."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.s3a_jobs import JOB, OTHER
from zero_rename.maintenance.purging import SettledJob
from zero_rename.maintenance.residue import Residue, ResidueAction, find_residue, residue_lines

HOUR = 3600.0
BLOCK = "s3ablock-0001-6656362383064864604.tmp"


def job(outcome: str, uuid: str = JOB) -> SettledJob:
    return SettledJob(uuid, "staging", outcome, "")


def task(buffer: Path, uuid: str = JOB) -> Path:
    """The folder of a task, with a file that it wrote."""
    name = f"{uuid}-attempt_202611261622517213038093591278216_0003_m_000001_7"
    file = buffer / name / "_temporary" / "0" / "part-0.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"rows")
    age(buffer / name, 2 * HOUR)
    return buffer / name


def block(buffer: Path) -> Path:
    made = buffer / BLOCK
    made.write_bytes(b"block")
    age(made, 3 * HOUR)
    return made


def staged(staging: Path, uuid: str = JOB) -> Path:
    """The folder of a job, with a committed task's pending set."""
    tree = staging / "somebody" / uuid
    file = tree / "staging-uploads" / "_temporary" / "0" / "task_1_0003_m_000001"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"{}")
    age(tree, 2 * HOUR)
    return tree


def age(path: Path, seconds: float) -> None:
    """Let all that lies there be so old."""
    then = time.time() - seconds
    for one in (*path.rglob("*"), path):
        os.utime(one, (then, then))


def actions(found: Sequence[Residue]) -> list[tuple[str, str, int]]:
    return [(Path(it.path).name, str(it.action), it.bytes) for it in found]


def test_folder_of_a_task_goes_with_its_job(tmp_path: Path) -> None:
    path = task(tmp_path)
    planned = find_residue(None, str(tmp_path), [job("would-roll-back")], apply=False)
    assert actions(planned.found) == [(path.name, "would-remove", 4)]
    assert path.exists()
    done = find_residue(None, f"file://{tmp_path}", [job("rolled-back")], apply=True)
    assert actions(done.found) == [(path.name, "removed", 4)]
    assert not path.exists()


@pytest.mark.parametrize("outcome", ["left", "needs-decision", "failed"])
def test_folder_of_a_task_whose_job_may_live_is_not_touched(tmp_path: Path, outcome: str) -> None:
    path = task(tmp_path)
    assert find_residue(None, str(tmp_path), [job(outcome)], apply=True).found == ()
    assert path.exists()


def test_what_no_job_is_known_of_is_reported_and_left(tmp_path: Path) -> None:
    paths = [block(tmp_path), task(tmp_path, OTHER)]
    (tmp_path / "notes.txt").write_text("mine")
    age(tmp_path / "notes.txt", 9 * HOUR)
    done = find_residue(None, str(tmp_path), [job("rolled-back")], apply=True)
    assert actions(done.found) == [(paths[0].name, "left", 5), (paths[1].name, "left", 4)]
    assert [it.job for it in done.found] == ["", OTHER]
    assert all(path.exists() for path in paths)
    assert "Left by dead drivers" in "\n".join(residue_lines(done))


def test_file_that_a_process_has_open_is_no_residue(tmp_path: Path) -> None:
    made = block(tmp_path)
    with made.open("rb"):
        assert find_residue(None, str(tmp_path), [], apply=True).found == ()
    assert [it.action for it in find_residue(None, str(tmp_path), []).found] == [ResidueAction.LEFT]


def test_file_that_a_process_has_open_behind_a_link_is_no_residue(tmp_path: Path) -> None:
    link = tmp_path / "buffer"
    (tmp_path / "disk").mkdir()
    link.symlink_to(tmp_path / "disk")
    with block(link).open("rb"):
        assert find_residue(None, str(link), [], apply=True).found == ()


def test_file_that_was_written_lately_is_no_residue(tmp_path: Path) -> None:
    path = task(tmp_path)
    (path / "_temporary" / "0" / "part-1.parquet").write_bytes(b"")
    assert find_residue(None, str(tmp_path), [job("rolled-back")], apply=True).found == ()
    assert path.exists()


def test_staged_job_that_no_destination_knows_is_reported(tmp_path: Path) -> None:
    mine, other = staged(tmp_path), staged(tmp_path, OTHER)
    (found,) = find_residue(str(tmp_path), None, [job("left")], apply=True).found
    assert (found.path, found.job, found.action) == (str(other), OTHER, ResidueAction.LEFT)
    assert mine.exists()
    assert other.exists()


def test_folders_of_other_machines_are_said_to_be_out_of_reach(tmp_path: Path) -> None:
    asked = f"hdfs://nn/tmp, {tmp_path / 'nothing'}"
    found = find_residue(str(tmp_path / "staging"), asked, [])
    assert found.found == ()
    assert len(found.unreachable) == 3
    assert "cannot be looked at from here" in found.unreachable[0]
    assert found.unreachable[1] == "hdfs://nn/tmp is no folder of this machine."


def test_nothing_is_looked_at_where_no_folder_is_named() -> None:
    found = find_residue(None, None, [job("rolled-back")], apply=True)
    assert (found.found, found.unreachable, residue_lines(found)) == ((), (), [])


def test_folder_that_a_task_removes_during_the_search_is_not_residue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task(tmp_path)
    scan = os.scandir

    def scan_late(path: object) -> object:
        if isinstance(path, Path) and path.name == "_temporary":
            shutil.rmtree(path)
        return scan(path)  # pyrefly: ignore[no-matching-overload]

    monkeypatch.setattr(os, "scandir", scan_late)
    assert find_residue(None, str(tmp_path), [job("rolled-back")]).found == ()
