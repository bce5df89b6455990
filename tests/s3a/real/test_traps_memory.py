"""Magic's pending files kept in memory, and the process that kept them killed."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from support.dead_drivers import Death, kill_driver, pending_set
from support.hadoop_committers import Application
from zero_rename.s3a.hadoop.commit_files import PendingSet
from zero_rename.s3a.hadoop.settings import IN_MEMORY_KEY

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.of_the_jars]


@pytest.mark.shows("in-memory-tracking")
def test_nothing_says_whose_the_uploads_are(application: Application, tmp_path: Path) -> None:
    deaths = [
        Death(
            application.place(application.new_bucket()),
            "magic",
            str(uuid.uuid4()),
            pending_set(0),
            overrides={IN_MEMORY_KEY: str(in_memory).lower()},
        )
        for in_memory in (False, True)
    ]
    kill_driver(application, tmp_path, *deaths)
    written, in_memory = (death.place for death in deaths)
    assert written.uploads()
    assert in_memory.uploads()
    assert [key for key in written.objects() if key.endswith(".pending")]
    # A task that was not held back may have written its list; of the other one there is nothing.
    assert not [key for key in in_memory.objects() if key.endswith(".pending")]
    lists = [key for key in in_memory.objects() if key.endswith(".pendingset")]
    sets = [PendingSet.parse(in_memory.body(key), key) for key in lists]
    assert set(in_memory.uploads()) - {commit.key for one in sets for commit in one.commits}
    # And their names carry Spark's UUID of the write, not the one that was handed in.
    assert not any(deaths[1].uuid in key for key in in_memory.uploads())
