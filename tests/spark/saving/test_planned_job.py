"""What is advised after a conflict, by what the application has read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.protocol import DAY1, DAY2, ROOT, World
from zero_rename.committer import CommitConflictError, ReadBase
from zero_rename.committer.format.job_spec import Mode
from zero_rename.committer.format.read_base import NOTHING_READ
from zero_rename.spark.reading.table_reads import Noted
from zero_rename.spark.saving.planned_job import advise

NOTHING = Noted(replace(NOTHING_READ, table=ROOT.url))


@pytest.mark.parametrize(
    ("noted", "anew"),
    [
        (NOTHING, False),
        # It knows what it has written itself, and another partition.
        (NOTHING.read(ReadBase(ROOT.url, {DAY2: 1}, whole=False), None), False),
        (NOTHING.read(ReadBase(ROOT.url, {DAY1: 1}, whole=False), None), True),
        (NOTHING.read(ReadBase(ROOT.url, {DAY1: 1, DAY2: 1}), None), True),
    ],
)
def test_to_read_anew_only_what_was_read(noted: Noted, anew: bool) -> None:
    world = World()
    world.load(DAY1, DAY2)
    opened = world.open(Mode.REPLACE)
    base = noted.base_of(opened)
    opened = replace(opened, spec=replace(opened.spec, base=base))
    result = world.write(opened, DAY1)
    world.load(DAY1)
    with pytest.raises(CommitConflictError) as caught:
        world.commit(opened, result)
    advise(caught.value, opened, base)
    assert ("Load the table anew" in (caught.value.remedy or "")) is anew
    assert ("since this job opened" in caught.value.message) is not anew
