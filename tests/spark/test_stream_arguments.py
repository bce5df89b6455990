"""Arguments of ``stream()`` that are refused before a query starts, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from zero_rename.committer import InvalidInputError, Mode, Table
from zero_rename.spark import stream, stream_sink
from zero_rename.spark.stream_sink import MicroBatches
from zero_rename.tables import DeltaTable

TABLE, CHECKPOINT = "s3://bucket/events", "s3a://bucket/checkpoints/events"


class Started(BaseException):
    """The query was to be started."""


class Session:
    conf: ClassVar[dict[str, str]] = {}

    @property
    def read(self) -> Any:
        raise Started


class Frame:
    isStreaming = True
    sparkSession = Session()


def started(**given: Any) -> None:
    frame: Any = Frame()
    stream(frame, TABLE, checkpoint=CHECKPOINT, **given)


@pytest.mark.parametrize("output_mode", ["complete", "Complete"])
def test_batches_that_have_all_rows_again_are_not_appended(output_mode: str) -> None:
    """Each batch would add the rows of the batches before it once more."""
    with pytest.raises(InvalidInputError, match="each batch has all rows again"):
        started(output_mode=output_mode)
    for given in ({"mode": "overwrite"}, {"mode": "merge", "merge_on": ["id"]}):
        with pytest.raises(Started):
            started(output_mode=output_mode, **given)
    with pytest.raises(Started):
        started(output_mode="update")


class Plan:
    """A plan of Spark's, as its classic frames show it."""

    def __init__(self, name: str, *below: Plan, streams: bool = True) -> None:
        self._name, self._below, self._streams = name, below, streams

    def queryExecution(self) -> Plan:
        return self

    analyzed = children = queryExecution

    def nodeName(self) -> str:
        return self._name

    def isStreaming(self) -> bool:
        return self._streams

    def size(self) -> int:
        return len(self._below)

    def apply(self, index: int) -> Plan:
        return self._below[index]


@pytest.mark.parametrize(
    ("plan", "refused"),
    [
        (Plan("Project", Plan("Aggregate", Plan("StreamingRelationV2"))), True),
        (Plan("Deduplicate", Plan("StreamingRelationV2")), False),
        (Plan("Join", Plan("Relation"), Plan("Aggregate", streams=False)), False),
    ],
)
def test_changed_groups_of_an_aggregation_are_not_appended(
    monkeypatch: pytest.MonkeyPatch, plan: Plan, refused: bool
) -> None:
    """Each batch would add the new values of its groups to their former ones."""
    monkeypatch.setattr(Frame, "_jdf", plan, raising=False)
    if refused:
        with pytest.raises(InvalidInputError, match=r"has an aggregation\..*mode='merge'"):
            started(output_mode="Update")
    else:
        with pytest.raises(Started):
            started(output_mode="update")
    for given in ({"mode": "merge", "merge_on": ["id"], "output_mode": "update"}, {}):
        with pytest.raises(Started):
            started(**given)


def test_key_that_is_a_text_is_refused() -> None:
    """Each of its letters would be a column."""
    with pytest.raises(InvalidInputError, match=r"merge_on is the text 'id'.*merge_on=\['id'\]"):
        started(mode="merge", merge_on="id")


def test_task_that_names_partitions_may_have_them_replaced_in_any_spelling_of_the_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ZERO_RENAME_MODE", "replace")
    monkeypatch.setenv("ZERO_RENAME_PARTITIONS", "day=1")
    with pytest.raises(InvalidInputError, match="each batch would replace them"):
        started(mode="overwrite", partition_by=["day"])
    with pytest.raises(Started):
        started(mode="overwrite", partition_by=["day"], output_mode="Complete")


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"partition_by": ["day"]}, {"partitionBy": "hour"}),
        ({"mode": "fail-if-exists"}, {"failIfExists": False}),
    ],
)
def test_option_that_contradicts_an_argument_is_refused_when_the_query_starts(
    given: dict[str, Any], options: dict[str, Any]
) -> None:
    """Each batch would be refused for it, long after the call."""
    with pytest.raises(InvalidInputError, match=f"The option {next(iter(options))} is "):
        started(**given, options=options)


def test_options_may_be_numbers_and_truth_values() -> None:
    with pytest.raises(Started):
        started(options={"mergeSchema": True, "rowsPerFile": 9})
    with pytest.raises(InvalidInputError, match="idempotencyKey is given"):
        started(options={"idempotencyKey": 7})


@pytest.mark.memory_s3
def test_batch_of_a_checkpoint_that_was_put_back_is_refused_though_its_entries_were_cleaned(
    s3_bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other engines clean a Delta table's log: the jobs of its runs are not named any more."""
    table = DeltaTable(f"s3://{s3_bucket.name}/flights")
    with table.job(pa.schema([("n", pa.int64())]), idempotency_key="stream-q-2") as job:
        job.write(pa.table({"n": [1]}))
    monkeypatch.setattr(DeltaTable, "job_of_key", lambda *_: None)
    batches = MicroBatches(table.root.url, "s3://bucket/checkpoint", (), Mode.APPEND, _query="q")
    with pytest.raises(InvalidInputError, match="holds that batch and batch 2: the checkpoint"):
        batches._refuse_rewound(1)
    batches._refuse_rewound(2)


@pytest.mark.parametrize("layout", ["directory", "delta"])
@pytest.mark.memory_s3
def test_second_query_that_is_at_work_with_one_checkpoint_is_ended(
    s3_bucket: Any, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """Its batches were taken for those of the other one, and their rows were lost."""
    url = f"s3://{s3_bucket.name}/flights"
    kind: Any = DeltaTable if layout == "delta" else Table
    rows = pa.table({"n": [1]})

    def saved(batch: Any, table: str, *, options: dict[str, str], **_: Any) -> Any:
        key, again = options["idempotencyKey"], options["onRepeat"]
        with kind(table).job(rows.schema, idempotency_key=key, on_repeat=again) as job:
            job.write(rows)
        return job.committed

    monkeypatch.setattr(stream_sink, "query_id", lambda *_: "q")
    monkeypatch.setattr(stream_sink, "plan_of", lambda *_: "stream-plan-0")
    monkeypatch.setattr(stream_sink, "save", saved)

    def started(planned: int | None) -> MicroBatches:
        """A query whose checkpoint had plans up to this batch when it started."""
        return MicroBatches(url, "s3a://bucket/checkpoint", (), Mode.APPEND, planned=planned)

    first, second = started(-1), started(0)
    batch: Any = SimpleNamespace(_jdf=None)
    first(batch, 0)
    second(batch, 0)  # As after a restart.
    second(batch, 1)
    with pytest.raises(InvalidInputError, match="another query is at work with the checkpoint"):
        first(batch, 1)
    third = started(1)  # It plans batch 2 itself, and reads the plan that the second one left.
    second(batch, 2)
    with pytest.raises(InvalidInputError, match="another query is at work with the checkpoint"):
        third(batch, 2)
    unknown = started(None)
    unknown(batch, 2)
    restarted = started(2)
    restarted(batch, 2)
    restarted(batch, 3)
    assert kind(url).scan().count() == 4
