"""Live files of a checkpoint, read a column at a time: all or those chosen, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from support.log_tables import COLUMNS, file_of
from zero_rename.committer.errors import RecordDamagedError
from zero_rename.log.actions import AddFile, LogMetadata
from zero_rename.log.file_columns import read_adds
from zero_rename.log.partitions import Partition, PartitionChoice

_MAP = pa.map_(pa.string(), pa.string())
TYPES = {
    "path": pa.string(),
    "partitionValues": _MAP,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
    "tags": _MAP,
}


def rows_of(*files: AddFile | None, types: Mapping[str, pa.DataType] = TYPES, **more: Any) -> Any:
    """The column ``add`` of a checkpoint; ``None``: a row of another action."""
    rows = [
        None
        if file is None
        else {
            "path": file.path,
            "partitionValues": list(file.values.items()),
            "size": file.size,
            "modificationTime": file.modified,
            "dataChange": file.changes_data,
            "stats": file.statistics,
            "tags": list(file.tags.items()),
            **more,
        }
        for file in files
    ]
    return pa.array(rows, pa.struct(list(types.items())))


def choice(*wanted: Partition, metadata: LogMetadata = COLUMNS) -> PartitionChoice:
    return PartitionChoice(metadata, lambda partition: partition in wanted)


FILES = [
    file_of("a", 0, "1"),
    replace(file_of("a", 1, None), statistics="{}", changes_data=False),
    replace(file_of("b", 0, "2"), tags={"job": "b", "v": "2"}),
    replace(file_of("b", 1, "1"), tags={"job": "b", "v": "2"}),
]


def test_files_are_read_as_they_were_written_between_other_actions() -> None:
    assert list(read_adds(rows_of(None, *FILES[:2], None, *FILES[2:]), "key")) == FILES


def test_equal_values_and_tags_are_one_object() -> None:
    first, _, third, fourth = read_adds(rows_of(*FILES), "key")
    assert first.values is fourth.values
    assert third.tags is fourth.tags


@pytest.mark.parametrize(
    ("wanted", "found"),
    [([("1",)], [0, 3]), ([(None,)], [1]), ([("1",), ("2",)], [0, 2, 3]), ([("9",)], [])],
)
def test_files_of_chosen_partitions_alone_are_read(
    wanted: list[Partition], found: list[int]
) -> None:
    read = read_adds(rows_of(None, *FILES), "key", choice(*wanted))
    assert list(read) == [FILES[it] for it in found]


def test_partition_is_chosen_however_its_values_are_spelled() -> None:
    fields = [{"name": "at", "type": "timestamp"}, {"name": "day", "type": "string"}]
    two = replace(COLUMNS, schema=json.dumps({"fields": fields}), partition_columns=("at", "day"))
    at = "2013-01-01 05:00:00.000000"
    spelled = ["2013-01-01T05:00:00.000000Z", "2013-01-01 05:00:00", "2013-01-01 06:00:00"]
    files = [replace(FILES[0], path=it, values={"at": it, "day": "1"}) for it in spelled]
    files.append(replace(files[0], values={"at": spelled[0], "day": None}))
    read = read_adds(rows_of(*files), "key", choice((at, "1"), metadata=two))
    assert [it.path for it in read] == spelled[:2]


def test_all_files_of_a_table_without_partitions_are_chosen_or_none() -> None:
    plain = replace(COLUMNS, partition_columns=())
    files = [replace(it, values={}) for it in FILES]
    assert list(read_adds(rows_of(*files), "key", choice((), metadata=plain))) == files
    assert not list(read_adds(rows_of(*files), "key", choice(metadata=plain)))


def test_rows_without_optional_members_are_read() -> None:
    few = {name: TYPES[name] for name in ("path", "partitionValues", "size", "modificationTime")}
    column = pa.array(
        [{name: None for name in few} | {"path": "p", "size": 1, "modificationTime": 2}],
        pa.struct(list(few.items())),
    )
    assert list(read_adds(column, "key")) == [AddFile("p", {}, 1, 2)]


def test_rows_of_other_actions_alone_are_no_files() -> None:
    assert not list(read_adds(rows_of(None, None), "key"))
    assert not list(read_adds(rows_of(None), "key", choice(("1",))))


@pytest.mark.parametrize(
    ("types", "more", "member"),
    [
        ({}, {"size": -1}, "add.size"),
        ({}, {"size": None}, "add.size"),
        ({}, {"path": None}, "add.path"),
        ({"modificationTime": pa.string()}, {"modificationTime": "late"}, "add.modificationTime"),
        ({"tags": pa.int64()}, {"tags": 7}, "add.tags"),
        ({"deletionVector": pa.string()}, {"deletionVector": "u"}, "add.deletionVector"),
    ],
)
def test_member_that_cannot_be_read_is_named(
    types: dict[str, pa.DataType], more: dict[str, object], member: str
) -> None:
    column = rows_of(*FILES, types={**TYPES, **types}, **more)
    with pytest.raises(RecordDamagedError) as raised:
        list(read_adds(column, "key"))
    assert (raised.value.field, raised.value.key) == (member, "key")


def test_feature_that_is_not_known_is_refused_in_partitions_that_are_not_chosen_too() -> None:
    column = rows_of(*FILES, types={**TYPES, "deletionVector": pa.string()}, deletionVector="u")
    with pytest.raises(RecordDamagedError, match="the feature deletionVectors"):
        list(read_adds(column, "key", choice(("9",))))
