"""What Hadoop's own committers left when their driver was killed, recovered and read by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.dead_drivers import Death
from support.hadoop_committers import Application, numbers
from zero_rename.committer.format.records.success_marker import SuccessMarker
from zero_rename.s3a.recovery.liveness import JobLiveness, RecoveryOptions
from zero_rename.s3a.recovery.recover import JobOutcome, RecoveredJob, recover_jobs

pytestmark = [pytest.mark.spark, pytest.mark.slow]

OLD, NEW = range(40), range(100, 140)


def recover(death: Death, **options: Any) -> RecoveredJob:
    fields: dict[str, Any] = {"dead": {death.uuid}, "apply": True, **options}
    given = RecoveryOptions(**fields)
    (found,) = death.place.driver.run(recover_jobs(death.place.root, given))
    return found


def test_nobody_may_touch_what_wrote_lately(dead: Mapping[str, Death]) -> None:
    death = dead["in the middle of its commit"]
    before = death.place.objects()
    found = recover(death, dead=frozenset(), force=True)
    assert (found.job, found.state, found.outcome) == (
        death.uuid,
        JobLiveness.LIVE,
        JobOutcome.LEFT,
    )
    assert death.place.objects() == before


@pytest.mark.parametrize(
    ("name", "options", "written"),
    [
        ("in the middle of its commit", {}, 1),
        ("at the end of its commit", {}, 3),
        ("a staging committer in the middle", {}, 1),
    ],
)
def test_rolled_forward(
    application: Application,
    dead: Mapping[str, Death],
    folder: Path,
    name: str,
    options: dict[str, Any],
    written: int,
) -> None:
    # S3A conformance 48, 50
    death = dead[name]
    staged = death.committer != "magic"
    if staged:
        blind = recover(death, **options)
        assert blind.outcome is JobOutcome.NEEDS_DECISION, "their metadata are in the folder"
        options = {**options, "staging": f"{folder}/staging"}
    would = recover(death, apply=False, **options)
    assert would.outcome is JobOutcome.WOULD_ROLL_FORWARD
    found = recover(death, **options)
    assert found.outcome is JobOutcome.ROLLED_FORWARD, found.reason
    assert (found.job, found.tasks, found.files) == (death.uuid, 2, 4)
    assert (found.written, found.completed) == (written, 4 - written)
    assert sorted(application.rows(death.place)) == numbers(OLD, NEW)
    marker = SuccessMarker.parse(death.place.body("_SUCCESS"), "_SUCCESS")
    committer = "staging" if staged else "magic"
    assert (marker.job, marker.committer, len(marker.filenames)) == (death.uuid, committer, 4)
    assert [*folder.glob(f"staging/*/{death.uuid}")] == []
    check_clean(death)


@pytest.mark.parametrize("name", ["before its commit", "with a task not committed"])
def test_rolled_back(application: Application, dead: Mapping[str, Death], name: str) -> None:
    # S3A conformance 46
    death = dead[name]
    found = recover(death)
    assert found.outcome is JobOutcome.ROLLED_BACK, found.reason
    assert (found.job, found.aborted) == (death.uuid, 4)
    assert sorted(application.rows(death.place)) == numbers(OLD)
    check_clean(death)


def check_clean(death: Death) -> None:
    assert death.place.uploads() == []
    assert not [key for key in death.place.objects() if "__magic" in key]
    assert death.place.driver.run(recover_jobs(death.place.root, RecoveryOptions(deep=True))) == ()
