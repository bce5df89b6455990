"""What a driver that is killed leaves, at four points of a job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from support.dead_drivers import Death
from support.hadoop_committers import Application, Place, numbers
from support.recorded import check_recorded
from zero_rename.s3a.hadoop.commit_files import PendingSet

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def pending_sets(place: Place) -> list[PendingSet]:
    names = [key for key in place.objects() if key.endswith(".pendingset")]
    return [PendingSet.parse(place.body(name), name) for name in names]


@pytest.mark.parametrize(
    ("name", "sets", "outstanding", "completed"),
    [("before", 2, 4, 0), ("middle", 2, 3, 1), ("tasks", 1, 4, 0)],
)
class TestMagic:
    def test_leaves_its_tree_and_its_uploads(
        self,
        application: Application,
        dead: Mapping[str, Death],
        name: str,
        sets: int,
        outstanding: int,
        completed: int,
    ) -> None:
        # S3A conformance 1, 9, 16, 34, 35
        death = dead[name]
        place = death.place
        left = [key for key in place.objects() if key.startswith("__magic_job-")]
        assert all(key.startswith(f"__magic_job-{death.uuid}/") for key in left)
        assert len(place.uploads()) == outstanding
        assert not place.has("_SUCCESS"), "setupJob removed the former job's marker"
        read = pending_sets(place)
        assert len(read) == sets
        assert {one.job for one in read} == {death.uuid}
        commits = [commit for one in read for commit in one.commits]
        assert all(c.key.startswith(f"{place.prefix}/day=") for c in commits)
        there = {f"{place.prefix}/{path}" for path in place.files()}
        assert len([c for c in commits if c.key in there]) == completed
        assert {c.key for c in commits if c.key not in there} <= set(place.uploads())

    def test_readers_see_what_was_completed(
        self,
        application: Application,
        dead: Mapping[str, Death],
        name: str,
        sets: int,
        outstanding: int,
        completed: int,
    ) -> None:
        # S3A conformance 15, 16, 96
        seen = set(application.rows(dead[name].place))
        before = set(numbers(range(40)))
        assert before <= seen
        new = seen - before
        assert new <= set(numbers(range(100, 140)))
        assert len(new) == completed * 10, "10 rows a file"


def test_records_have_the_members_they_had(dead: Mapping[str, Death], folder: Path) -> None:
    # S3A conformance 9, 34, 35
    place = dead["tasks"].place
    for suffix, name in ((".pending", "magic.pending"), (".pendingset", "magic.pendingset")):
        key = next(key for key in place.objects() if key.endswith(suffix))
        check_recorded(name, place.body(key))
    staged = list(folder.glob(f"staging/*/{dead['staging'].uuid}/**/task_*"))
    assert len(staged) == 2
    for path in staged:
        read = PendingSet.parse(path.read_bytes(), path.name)
        assert read.job == "", "the folder alone says whose they are"
        assert dead["staging"].uuid in str(path)
        assert all(dead["staging"].uuid in commit.key for commit in read.commits)
    check_recorded("directory.pendingset", staged[0].read_bytes())


def test_staging_leaves_uploads_and_no_tree(
    application: Application, dead: Mapping[str, Death]
) -> None:
    # S3A conformance 16
    place = dead["staging"].place
    assert len(place.uploads()) == 3
    assert not [key for key in place.objects() if key.startswith("_")]
    assert len(set(application.rows(place)) - set(numbers(range(40)))) == 10


def test_a_retry_that_cleans_nothing_up_doubles_rows(
    application: Application, dead: Mapping[str, Death]
) -> None:
    place = dead["middle"].place
    there = [row for row in application.rows(place) if row[0] >= 100]
    assert len(there) == 10, "one of four files was completed"
    with application.with_committer("magic"):
        application.write(place, application.frame(100))
    again = [row for row in application.rows(place) if row[0] >= 100]
    assert sorted(again) == sorted(numbers(range(100, 140)) + there)
