"""Features of Delta tables: what is read, written and refused; a refusal writes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from conftest import Bucket

from support.delta_features import FEATURES, FeatureTable, protocol_of
from support.delta_log import commit, metadata
from support.delta_values import days
from zero_rename.committer.errors import TableMismatchError, UnsupportedTypeError
from zero_rename.committer.format.layout import new_job_id
from zero_rename.layouts.delta import features
from zero_rename.tables import DeltaTable

pytestmark = [pytest.mark.memory_s3]
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "delta.md"


@pytest.fixture
def table(s3_bucket: Bucket) -> DeltaTable:
    table = DeltaTable(f"s3://{s3_bucket.name}/flights")
    for by in (["day"], None):  # Two files, so that there is something to compact.
        with table.job(days(("1", 5)).schema, partition_by=by) as job:
            job.write(days(("1", 5)))
    s3_bucket.put(f"flights/data/{new_job_id()}/0.parquet", b"")  # Something to purge.
    return table


def write(table: DeltaTable, **options: Any) -> None:
    with table.job(days(("1", 9)).schema, **options) as job:
        job.write(days(("1", 9)))


#: Every verb that writes.
VERBS: dict[str, Callable[[DeltaTable], object]] = {
    "append": write,
    "replace": lambda table: write(table, mode="overwrite"),
    "merge": lambda table: table.merge(days(("1", 9)), ["day"]),
    "delete": lambda table: table.delete([("delay", "==", 5)]),
    "restore": lambda table: table.restore(0, apply=True),
    "checkpoint": lambda table: table.checkpoint_log(),
    "purge": lambda table: table.purge(apply=True),
    "compact": lambda table: _refusal_of_compaction(table),
}


def _refusal_of_compaction(table: DeltaTable) -> None:
    [partition] = table.compact(apply=True)
    raise TableMismatchError(partition.reason)


def refused(table: DeltaTable, bucket: Bucket, name: str, verbs: Collection[str] = VERBS) -> None:
    """Each verb is refused by the feature's name, and writes nothing."""
    before = bucket.sizes()
    for verb in verbs:
        with pytest.raises(TableMismatchError, match=re.escape(name)):
            VERBS[verb](table)
        assert bucket.sizes() == before, verb


@pytest.mark.parametrize("feature", FEATURES, ids=lambda it: it.name)
def test_a_feature_is_read_and_written_as_the_list_says(
    table: DeltaTable, s3_bucket: Bucket, feature: FeatureTable
) -> None:
    mapped = "columnMapping" in str(feature.made)
    properties = {"delta.columnMapping.mode": "name"} if mapped else {}
    if feature.written == "appends":
        properties["delta.appendOnly"] = "true"
    commit(s3_bucket, {"protocol": protocol_of(feature)}, metadata(s3_bucket, properties))
    if feature.read:
        assert len(table.scan().to_arrow()) == 2
    else:
        with pytest.raises(TableMismatchError, match="cannot be read here"):
            table.scan().to_arrow()
    if feature.written == "no":
        refused(table, s3_bucket, "columnMapping" if mapped else feature.name)
        return
    write(table)
    assert len(table.scan().to_arrow()) == 3
    if feature.written == "appends":
        refused(table, s3_bucket, feature.name, ["replace", "merge", "delete", "restore"])


def test_the_guide_lists_each_feature() -> None:
    rows = re.findall(r"^\| `(\S+)` .*\| (\S+) \| (\S+) \|$", GUIDE.read_text(), re.MULTILINE)
    assert {name: (read, written) for name, read, written in rows} == {
        feature.name: feature.cells for feature in FEATURES
    }
    assert {feature.name for feature in FEATURES if feature.written != "no"} == (
        features.WRITE - {"invariants"}
    )


#: Properties of tables whose protocol has no list of features, and the feature each is of.
SWITCHES = {
    "delta.constraints.positive": ("id > 0", "checkConstraints"),
    "delta.constraints.never": ("false", "checkConstraints"),
    "delta.enableChangeDataFeed": ("true", "changeDataFeed"),
    "delta.enableIcebergCompatV3": ("true", "property delta.enableIcebergCompatV3"),
    "delta.universalFormat.enabledFormats": ("iceberg", "delta.universalFormat.enabledFormats"),
    "delta.somethingNew": ("1", "property delta.somethingNew"),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_property_that_binds_writers_is_refused_by_its_feature(
    table: DeltaTable, s3_bucket: Bucket, name: str
) -> None:
    value, feature = SWITCHES[name]
    commit(s3_bucket, metadata(s3_bucket, {name: value}))
    assert len(table.scan().to_arrow()) == 2
    refused(table, s3_bucket, feature)


def test_doctor_names_what_refuses_every_job(table: DeltaTable, s3_bucket: Bucket) -> None:
    assert table.doctor() == []
    retention = {"delta.deletedFileRetentionDuration": "P7D"}
    commit(s3_bucket, metadata(s3_bucket, {"delta.enableChangeDataFeed": "true", **retention}))
    features, interval = table.doctor()
    assert (features.what, interval.what) == ("table not writable here",) * 2
    assert "changeDataFeed" in features.detail
    assert "P7D" in interval.detail


#: By verb: what it says that it would do, of a table whose last job is given.
PREVIEWS: dict[str, Callable[[DeltaTable, str], object]] = {
    "restore": lambda table, job: table.restore(0),
    "undo": lambda table, job: table.undo(job),
    "purge": lambda table, job: table.purge(),
    "retention": lambda table, job: table.set_retention(86_400),
    "data root": lambda table, job: table.set_data_root("s3://elsewhere/scratch"),
    "compact": lambda table, job: _refusal(table.compact()[0].reason),
    "recover": lambda table, job: _refusal(table.plan_recovery(0)[0].detail),
}


def _refusal(said: str) -> None:
    raise TableMismatchError(said)


@pytest.mark.parametrize("verb", PREVIEWS)
def test_preview_is_refused_where_the_verb_would_be(
    table: DeltaTable, s3_bucket: Bucket, verb: str
) -> None:
    last = str(table.history(1)[0].job)
    table.job(days(("1", 9)).schema).__enter__()  # It dies.
    commit(s3_bucket, metadata(s3_bucket, {"delta.enableChangeDataFeed": "true"}))
    with pytest.raises(TableMismatchError, match="changeDataFeed"):
        PREVIEWS[verb](table, last)


@pytest.mark.parametrize("versions", [(4, 7), (3, 8), (0, 2)])
def test_a_protocol_of_another_version_is_refused(
    table: DeltaTable, s3_bucket: Bucket, versions: tuple[int, int]
) -> None:
    reader, writer = versions
    commit(s3_bucket, {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer}})
    refused(table, s3_bucket, f"writer version {writer}" if reader == 3 else "reader version")


#: Types of a column of which a part must not be null; the last is that column itself.
NEVER_NULL: dict[str, Any] = {
    "field": {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": False}]},
    "element": {"type": "array", "elementType": "long", "containsNull": False},
    "value": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False},
    "itself": {"type": "array", "elementType": "long", "containsNull": True},
}


@pytest.mark.parametrize("part", NEVER_NULL)
def test_a_part_of_a_nested_column_that_must_not_be_null_is_refused(
    table: DeltaTable, s3_bucket: Bucket, part: str
) -> None:
    changed = metadata(s3_bucket, {})
    struct = json.loads(changed["metaData"]["schemaString"])
    kind = {"name": "v", "type": NEVER_NULL[part], "nullable": part != "itself", "metadata": {}}
    changed["metaData"]["schemaString"] = json.dumps(struct | {"fields": [*struct["fields"], kind]})
    commit(s3_bucket, changed)
    refused(table, s3_bucket, "NOT NULL in nested columns (v)", ["append", "replace", "purge"])


@pytest.mark.parametrize("kind", ["void", "decimal(40,2)", "decimal(0,0)"])
def test_a_column_of_a_type_that_is_not_read_is_refused(
    table: DeltaTable, s3_bucket: Bucket, kind: str
) -> None:
    struct = {"type": "struct", "fields": [{"name": "v", "type": kind, "nullable": True}]}
    changed = metadata(s3_bucket, {})
    changed["metaData"] |= {"schemaString": json.dumps(struct), "partitionColumns": []}
    commit(s3_bucket, changed)
    before = s3_bucket.sizes()
    with pytest.raises(UnsupportedTypeError, match=re.escape(f"Delta's type {kind}")):
        write(table)
    assert s3_bucket.sizes() == before
