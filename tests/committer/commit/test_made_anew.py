"""Jobs that are open while their table is deleted and made anew in its place, as another one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from support.protocol import DAY1, DAY2, DAY3, World
from zero_rename.committer.errors import TableMismatchError
from zero_rename.committer.format.job_spec import Mode

TEXTS = pa.schema([("value", pa.string()), ("day", pa.int32())])
BY_MONTH = pa.schema([("value", pa.int64()), ("month", pa.int32())])


def make_anew(world: World, schema: pa.Schema, partition: str, column: str) -> None:
    """Delete all of the table, and load another one to the same root."""
    for key in list(world.store.objects):
        del world.store.objects[key]
    world.load(partition, schema=schema, partition_by=(column,))


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REPLACE])
@pytest.mark.parametrize("schema_mode", ["keep", "merge"])
def test_job_with_former_columns_is_refused(mode: Mode, schema_mode: str) -> None:
    """Readers could not read its files, and so none of the new table."""
    world = World()
    world.load(DAY1, DAY2)
    opened, result = world.written(DAY3, mode=mode, schema_mode=schema_mode)
    make_anew(world, TEXTS, DAY1, "day")
    with pytest.raises(TableMismatchError, match="value is int64, in the table string"):
        world.commit(opened, result)
    assert {it.partition for it in world.snapshot().files} == {DAY1}


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.REPLACE])
@pytest.mark.parametrize("schema_mode", ["keep", "merge"])
def test_job_with_former_partition_columns_is_refused(mode: Mode, schema_mode: str) -> None:
    world = World()
    world.load(DAY1)
    opened, result = world.written(DAY3, mode=mode, schema_mode=schema_mode)
    make_anew(world, BY_MONTH, "month=1", "month")
    with pytest.raises(TableMismatchError, match="deleted and made anew since this job opened"):
        world.commit(opened, result)
    assert {it.partition for it in world.snapshot().files} == {"month=1"}
