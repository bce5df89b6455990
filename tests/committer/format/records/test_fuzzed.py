"""Control objects are read without trust: whatever their bytes, the answer is a record or
RecordDamagedError naming object and field."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.protocol import DAY1, DAY2, ROOT, SCHEMA, World
from zero_rename.committer import Mode, RecordDamagedError, SuccessMarker
from zero_rename.committer.format.job_spec import Coordination
from zero_rename.committer.format.records.codec import FORMAT
from zero_rename.committer.format.records.decision import (
    CondensedDecision,
    Decision,
    DecisionPart,
    split_into_parts,
)
from zero_rename.committer.format.records.head import PartitionHead, Slot
from zero_rename.committer.format.records.manifest import Manifest
from zero_rename.committer.format.records.open_record import OpenRecord
from zero_rename.committer.format.records.store_facts import StoreFacts
from zero_rename.committer.format.records.success_marker import marker_write_id
from zero_rename.committer.format.records.table_record import TableRecord
from zero_rename.committer.store.conditional_put import write_id_of

EXAMPLES = 300
JOB = "zr1-0123456789ABCDEFGHJKMNPQRS"
Parser = Callable[[bytes], Any]


def _world() -> tuple[World, str]:
    world = World()
    for _ in range(30):
        world.load(DAY1, DAY2)
    return world, world.load(DAY1, mode=Mode.REPLACE, idempotency_key="run").job


def _samples() -> dict[str, tuple[Parser, bytes]]:
    """Each parser with a record that it reads."""
    world, job = _world()
    objects = world.store.objects
    decision_key = ROOT.decision_key(job)
    decision = Decision.decode(objects[decision_key].body, decision_key, ROOT, job)
    part = split_into_parts(decision, limit=1)[0]
    manifest_key = next(key for key in objects if "/manifests/" in key)
    slot = Slot.partition(ROOT, DAY1)
    opened = world.open(Mode.REPLACE, idempotency_key="other")
    marker_key = ROOT.marker_key(DAY1)
    manifest = gzip.decompress(objects[manifest_key].body)
    name = json.loads(manifest)["partition"]
    record = TableRecord("w", ("day",), SCHEMA, Coordination.STORE, StoreFacts())
    return {
        "decision": (
            lambda body: Decision.decode(body, decision_key, ROOT, job),
            objects[decision_key].body,
        ),
        "condensed decision": (
            lambda body: Decision.decode(body, decision_key, ROOT, job),
            CondensedDecision.of(decision, 1_700_000_000.0).encode(),
        ),
        "decision part": (lambda body: DecisionPart.decode(body, "key", ROOT, job), part.encode()),
        "head": (lambda body: PartitionHead.decode(body, slot, ROOT), objects[slot.key].body),
        "manifest": (lambda body: Manifest.decode(body, manifest_key, ROOT, name), manifest),
        "open record": (
            lambda body: OpenRecord.decode(body, "key"),
            objects[ROOT.open_key(opened.job)].body,
        ),
        "_SUCCESS": (lambda body: SuccessMarker.parse(body, marker_key), objects[marker_key].body),
        "table.json": (lambda body: TableRecord.decode(body, "key"), record.encode()),
    }


SAMPLES = _samples()
#: The job of the decision among them.
DECIDED = json.loads(SAMPLES["decision"][1])["job"]
MISSING = object()
#: What a member may be in place of what was written.
ODD = (
    *(None, True, 0, -1, 10**400, 1.5, 1e300, -math.inf, "", "x", "\ud800", "\x00", JOB),
    *([], [None], ["x"], [0], [[]], [{}], {}, {"": None}, {"x": "x"}, {"x": {}}),
)
fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def check(parse: Parser, body: bytes) -> None:
    """Anything else that is raised fails the test."""
    with contextlib.suppress(RecordDamagedError):
        parse(body)


def refused(name: str, way: tuple[Any, ...], value: Any) -> RecordDamagedError:
    """What is said of a sample with one member changed."""
    parse, body = SAMPLES[name]
    document = json.loads(body)
    *outer, last = way
    target = document
    for step in outer:
        target = target[step]
    target[last] = value
    with pytest.raises(RecordDamagedError) as caught:
        parse(json.dumps(document).encode())
    return caught.value


def paths(document: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something can be changed in a JSON document."""
    found = [at] if at else []
    entries = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for name, value in entries:
        found += paths(value, (*at, name))
    return found


@pytest.mark.parametrize("name", list(SAMPLES))
class TestParser:
    def test_reads_what_was_written(self, name: str) -> None:
        parse, body = SAMPLES[name]
        parse(body)

    @fuzzed
    @given(body=st.binary(max_size=64))
    def test_any_bytes(self, name: str, body: bytes) -> None:
        check(SAMPLES[name][0], body)

    @fuzzed
    @given(cut=st.integers(min_value=0), flip=st.integers(min_value=0, max_value=255))
    def test_truncated_or_flipped(self, name: str, cut: int, flip: int) -> None:
        parse, body = SAMPLES[name]
        place = cut % len(body)
        check(parse, body[:place])
        check(parse, body[:place] + bytes([flip]) + body[place + 1 :])

    def test_a_member_that_is_something_else(self, name: str) -> None:
        parse, body = SAMPLES[name]
        for *way, last in paths(json.loads(body)):
            for odd in (MISSING, *ODD):
                document = json.loads(body)
                target = document
                for step in way:
                    target = target[step]
                if odd is MISSING:
                    del target[last]
                else:
                    target[last] = odd
                check(parse, json.dumps(document).encode())

    def test_a_newer_format_says_so(self, name: str) -> None:
        parse, body = SAMPLES[name]
        if name == "_SUCCESS":
            pytest.skip("Hadoop's format has its version in its name")
        newer = json.loads(body) | {"format": FORMAT + 1}
        with pytest.raises(RecordDamagedError, match="Upgrade") as caught:
            parse(json.dumps(newer).encode())
        assert caught.value.field == "format"


@pytest.mark.parametrize(
    "key",
    [
        "other/day=1/part-00000-{job}-0000.parquet",
        "flights/day=2/part-00000-{job}-0000.parquet",
        "flights/day=1/../day=2/part-00000-{job}-0000.parquet",
        "flights/_zero_rename/table.json",
        "flights/day=1/part-00000-zr1-00000000000000000000000000-0000.parquet",
        "flights/day=1/_SUCCESS",
    ],
)
def test_a_decision_may_only_name_its_own_keys(key: str) -> None:
    """Recovery often has more rights than the writer had (S3A architecture, security)."""
    way = ("partitions", 0, "files", 0, "key")
    error = refused("decision", way, key.format(job=DECIDED))
    assert error.field == "partitions[0].files[0].key"


@pytest.mark.parametrize("name", list(SAMPLES))
@pytest.mark.parametrize("opening", [b"[", b'{"kind":'], ids=["lists", "objects"])
def test_json_nested_without_end_is_damage(name: str, opening: bytes) -> None:
    """Python's reader gives up on it with an error that is no ValueError."""
    with pytest.raises(RecordDamagedError, match="is not JSON"):
        SAMPLES[name][0](opening * 100_000)


@pytest.mark.parametrize("find", [write_id_of, marker_write_id])
@pytest.mark.parametrize("body", [b"[" * 100_000, b"\xff", b"", b"[]", b"{}"])
def test_what_is_no_record_has_no_write_id(
    find: Callable[[bytes], str | None], body: bytes
) -> None:
    """Read back after a lost answer, where anything may lie."""
    assert find(body) is None


@pytest.mark.parametrize(
    ("name", "way", "value", "says"),
    [
        # JSON's true is Python's 1.
        ("head", ("version",), True, "not an integer"),
        ("decision", ("partitions", 0, "base_version"), True, "not an integer"),
        ("open record", ("max_duration",), True, "not a number"),
        ("decision", ("partitions", 0, "replace"), 1, "not true or false"),
        ("head", ("version",), -1, "negative"),
        ("manifest", ("files", 0, "size"), -1, "negative"),
        ("decision part", ("number",), -1, "negative"),
        ("decision", ("partitions", 0, "base_version"), -2, "less than -1"),
    ],
)
def test_a_number_is_what_the_member_says(
    name: str, way: tuple[Any, ...], value: Any, says: str
) -> None:
    error = refused(name, way, value)
    assert says in error.message
    members = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in way)
    assert error.field == members.removeprefix(".")


@pytest.mark.parametrize(
    "key",
    [
        "other/_zero_rename/manifests/x.json",
        "flights/_zero_rename/jobs/x.json",
        "flights/day=1/part-00000.parquet",
    ],
)
def test_a_head_may_only_name_manifests_of_its_table(key: str) -> None:
    assert refused("head", ("manifest",), {"key": key, "etag": "e"}).field == "manifest.key"


@pytest.mark.parametrize(
    "key",
    [
        "other/_zero_rename/jobs/{job}.w.0",
        "flights/_zero_rename/jobs/" + JOB + ".w.0",
        "flights/_zero_rename/heads/{job}.w.0",
        "flights/day=1/part-00000-{job}-0000.parquet",
    ],
)
def test_a_decision_may_only_name_its_own_parts(key: str) -> None:
    parts = [{"key": key.format(job=DECIDED), "etag": "e"}]
    assert refused("decision", ("parts",), parts).field == "parts[0].key"


@pytest.mark.parametrize("name", ["decision", "decision part"])
def test_another_job_s_decision_is_refused(name: str) -> None:
    assert refused(name, ("job",), JOB).field == "job"


def test_control_characters_in_a_record_do_not_reach_a_log() -> None:
    error = RecordDamagedError("bad \x1b[31m name", key="flights/\x07")
    assert "\x1b" not in str(error)
    assert "\x07" not in str(error)


def test_a_table_record_names_columns_that_exist() -> None:
    record = TableRecord(
        "w", ("nope",), pa.schema([("a", pa.int64())]), Coordination.STORE, StoreFacts()
    )
    with pytest.raises(RecordDamagedError, match="not a column"):
        TableRecord.decode(record.encode(), "key")
