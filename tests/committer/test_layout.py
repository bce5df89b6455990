"""Table names and partition values as users make them up: each is written and read back."""

from __future__ import annotations

import itertools
import unicodedata

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from support.memory_store import MemoryDriver, MemoryStore
from zero_rename import Table
from zero_rename.committer import InvalidInputError
from zero_rename.committer.layout import TableRoot
from zero_rename.committer.schema.hive_paths import partition_values

_numbers = itertools.count()
NAMES = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    min_size=1,
    max_size=3,
).map("/".join)
VALUES = st.none() | st.text(
    st.characters(exclude_categories=["Cs", "Cn"]) | st.sampled_from(" /=%:'\"\\{}[]^#?*é漢🙂"),
    min_size=1,
    max_size=20,
)


def is_table_name(name: str) -> bool:
    """Whether the name is taken; :class:`InvalidInputError` is the only way to refuse it."""
    try:
        TableRoot.parse(f"s3://bucket/{name}")
    except InvalidInputError:
        return False
    return True


def table_in_memory(name: str) -> Table:
    """A table on a store of its own: names must not depend on what a server makes of them."""
    table = Table(f"s3://bucket-{next(_numbers)}/{name}")
    table.driver = MemoryDriver(MemoryStore(), bucket=table.root.bucket)  # type: ignore[assignment]
    return table


@settings(max_examples=300)
@given(name=NAMES)
def test_a_table_name_is_refused_or_read_back(name: str) -> None:
    url = f"s3://bucket/{name}"
    if not is_table_name(name):
        return
    root = TableRoot.parse(url)
    assert TableRoot.parse(root.url) == root
    assert root.prefix == name.rstrip("/")
    for partition in ("day=1", "day=1/hour=2"):
        assert root.partition_of_head_key(root.head_key(partition)) == partition
        key = root.data_key(partition, 0, "zr1-" + "0" * 26, 0)
        assert root.partition_of_data_key(key) == partition


@settings(max_examples=200)
@given(
    name=NAMES.filter(is_table_name),
    values=st.lists(VALUES, min_size=1, max_size=4, unique=True),
)
def test_rows_come_back_under_any_table_name_and_partition_value(
    name: str, values: list[str | None]
) -> None:
    data = pa.table({"row": range(len(values)), "value": pa.array(values, pa.string())})
    table = table_in_memory(name)
    with table.job(data.schema, partition_by=["value"]) as job:
        job.write(data)
    files = table.snapshot().files
    assert sum(file.rows for file in files) == len(values)
    assert len({file.partition for file in files}) == len(values)
    found = {_value_of(file.partition) for file in files}
    assert found == set(values)


def _value_of(partition: str) -> str | None:
    schema = pa.schema([("row", pa.int64()), ("value", pa.string())])
    return partition_values(partition, schema, ["value"])["value"]


def test_names_that_look_alike_are_two_tables() -> None:
    composed, decomposed = "caf\u00e9", unicodedata.normalize("NFD", "caf\u00e9")
    assert TableRoot.parse(f"s3://bucket/{composed}") != TableRoot.parse(
        f"s3://bucket/{decomposed}"
    )
