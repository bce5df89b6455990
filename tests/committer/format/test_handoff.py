"""What a submitter says arrives as it was said, by environment variables."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import zlib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zero_rename.committer import (
    InvalidInputError,
    Mode,
    OnConflict,
    OnRepeat,
    OnSuperseded,
    RunRank,
    RunRanks,
    SuccessMarkers,
    TableRoot,
)
from zero_rename.committer.format.handoff import HANDOFF, LONGEST, Handoff
from zero_rename.committer.format.job_spec import Distribute, TableLayout
from zero_rename.committer.store.client_settings import S3_CLIENT
from zero_rename.committer.store.encryption import Algorithm, Encryption
from zero_rename.committer.store.fast_root import FastRoot

ROOT = TableRoot("bucket", "wh/flights")
DATA_ROOT = FastRoot("fast", "a b/lake", "http://nvme.example:9000", "my nvme", temporary=True)
ENCRYPTION = Encryption(Algorithm.SSE_KMS, "alias/lake")
RANKS = RunRanks({"": RunRank(0.1, 1e9), 'day="ü"': RunRank.of("2013-01-02")})
#: Whatever an environment can hold, and what is read with care more often than the rest.
TEXT = st.text(
    st.sampled_from(',;[]{}"=%$ \\\n\té') | st.characters(codec="utf-8", exclude_characters="\0"),
    min_size=1,
).filter(lambda text: text.strip())
NUMBER = st.none() | st.integers(-(10**14), 10**14)
HANDOFFS = st.builds(
    Handoff,
    table=st.none() | st.sampled_from([ROOT, TableRoot("b.c", "a b=/ü,$x")]),
    committer=st.none() | TEXT,
    mode=st.none() | st.sampled_from(Mode),
    partitions=st.lists(st.text(min_size=1)).map(tuple),
    on_conflict=st.none() | st.sampled_from(OnConflict),
    on_superseded=st.none() | st.sampled_from(OnSuperseded),
    run_rank=st.none() | st.sampled_from([RunRanks.of(7), RANKS]),
    layout=st.none() | st.sampled_from(TableLayout),
    publish=st.none() | st.just(False),
    data_root=st.none() | st.just(DATA_ROOT),
    encryption=st.none() | st.just(ENCRYPTION),
    success_markers=st.none() | st.sampled_from(SuccessMarkers),
    distribute=st.none() | st.sampled_from(Distribute),
    merge_on=st.lists(st.text(min_size=1)).map(tuple),
    delete_when=st.none() | TEXT,
    latest_by=st.none() | TEXT,
    across_partitions=st.none() | st.just(True),
    code_version=st.none() | st.sampled_from(["4", "é=,;", "a" * 200]),
    idempotency_key=st.none() | TEXT,
    on_repeat=st.none() | st.sampled_from(OnRepeat),
    dag=st.none() | TEXT,
    run=st.none() | TEXT,
    task=st.none() | TEXT,
    map_index=NUMBER,
    try_number=NUMBER,
    series=st.none() | TEXT,
    s3a_run=st.none() | TEXT,
    replace_table=st.none() | st.just(True),
)
FULL = Handoff(
    table=ROOT,
    committer="magic",
    mode=Mode.REPLACE,
    partitions=("day=1", "day=a;b,c", 'p="$x'),
    on_conflict=OnConflict.LAST_WINS,
    on_superseded=OnSuperseded.SKIP,
    run_rank=RANKS,
    layout=TableLayout.DELTA,
    publish=False,
    data_root=DATA_ROOT,
    encryption=ENCRYPTION,
    success_markers=SuccessMarkers.TABLE,
    distribute=Distribute.PARTITION,
    merge_on=("id", "a,b"),
    delete_when="op = 'D'",
    latest_by="at",
    across_partitions=True,
    code_version="v4",
    idempotency_key="dag/run/task/3",
    on_repeat=OnRepeat.REPLACE_OWN,
    dag="dag",
    run="scheduled__2013-02-02T00:00:00+00:00",
    task="a % of = things",
    map_index=-1,
    try_number=2,
    series="2013-02-02T00:00:00+00:00 2",
    s3a_run="5b1e",
    replace_table=True,
)


@given(HANDOFFS)
@example(Handoff())
@example(FULL)
@example(Handoff(partitions=("[", " ", ";")))
def test_it_comes_back(handoff: Handoff) -> None:
    variables = handoff.encode()
    assert Handoff.decode(variables) == handoff
    assert Handoff.decode({"PATH": "/bin", **variables}) == handoff
    said = {f.name for f in fields(Handoff) if getattr(handoff, f.name) != f.default}
    assert set(variables) == {Handoff.variable(name) for name in said}


@given(HANDOFFS)
@example(FULL)
def test_it_comes_back_as_one_word(handoff: Handoff) -> None:
    word = handoff.pack()
    assert re.fullmatch(r"[A-Za-z0-9_-]+", word)
    assert Handoff.decode({HANDOFF: word}) == handoff
    assert (
        Handoff.decode({HANDOFF: word, "ZERO_RENAME_IDEMPOTENCY_KEY": "by hand"}).idempotency_key
        == "by hand"
    )


@pytest.mark.parametrize("word", ["no handoff", "AAAA", "é", "eJwrBgAAdAB0"])
def test_a_word_that_is_none(word: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{HANDOFF} .* is not what a submitter"):
        Handoff.decode({HANDOFF: word})


def test_word_of_a_newer_submitter_is_refused_where_it_says_what_is_not_known_here() -> None:
    """As a policy, to which the application would not keep."""
    said = {Handoff.variable("mode"): "append", "ZERO_RENAME_NEWER_POLICY": "true"}
    word = base64.urlsafe_b64encode(zlib.compress(json.dumps(said).encode())).decode()
    with pytest.raises(InvalidInputError, match="says ZERO_RENAME_NEWER_POLICY, which"):
        Handoff.decode({HANDOFF: word})


@settings(max_examples=5)
@given(HANDOFFS)
@example(FULL)
def test_it_comes_back_through_a_process(handoff: Handoff) -> None:
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    environ = {"PYTHONUTF8": "1", "PATH": os.environ["PATH"], **handoff.encode()}
    shown = subprocess.run(
        [sys.executable, "-I", "-X", "utf8", "-c", show], env=environ, capture_output=True
    )
    assert Handoff.decode(json.loads(shown.stdout)) == handoff


def test_every_member_is_tried_above() -> None:
    assert all(getattr(FULL, f.name) not in (None, ()) for f in fields(Handoff))


def test_variables_a_person_reads() -> None:
    """Documented, or read by applications."""
    assert FULL.encode() == {
        "ZERO_RENAME_TABLE": "s3://bucket/wh/flights",
        "ZERO_RENAME_COMMITTER": "magic",
        "ZERO_RENAME_MODE": "replace",
        "ZERO_RENAME_PARTITIONS": '["day=1", "day=a;b,c", "p=\\"$x"]',
        "ZERO_RENAME_ON_CONFLICT": "last_wins",
        "ZERO_RENAME_ON_SUPERSEDED": "skip",
        "ZERO_RENAME_RUN_RANK": '{"":[0.1,1000000000.0],"day=\\"\\u00fc\\"":[1357084800.0]}',
        "ZERO_RENAME_SUCCESS_MARKERS": "table",
        "ZERO_RENAME_LAYOUT": "delta",
        "ZERO_RENAME_PUBLISH": "false",
        "ZERO_RENAME_DATA_ROOT": "s3://fast/a b/lake?endpoint=http://nvme.example:9000"
        "&profile=my+nvme&temporary=true",
        "ZERO_RENAME_ENCRYPTION": "SSE-KMS alias/lake",
        "ZERO_RENAME_MERGE_ON": '["id", "a,b"]',
        "ZERO_RENAME_DELETE_WHEN": "op = 'D'",
        "ZERO_RENAME_LATEST_BY": "at",
        "ZERO_RENAME_ACROSS_PARTITIONS": "true",
        "ZERO_RENAME_CODE_VERSION": "v4",
        "ZERO_RENAME_IDEMPOTENCY_KEY": "dag/run/task/3",
        "ZERO_RENAME_ON_REPEAT": "replace_own",
        "ZERO_RENAME_DAG": "dag",
        "ZERO_RENAME_RUN": "scheduled__2013-02-02T00:00:00+00:00",
        "ZERO_RENAME_TASK": "a % of = things",
        "ZERO_RENAME_MAP_INDEX": "-1",
        "ZERO_RENAME_TRY_NUMBER": "2",
        "ZERO_RENAME_SERIES": "2013-02-02T00:00:00+00:00 2",
        "ZERO_RENAME_S3A_RUN": "5b1e",
        "ZERO_RENAME_REPLACE_TABLE": "true",
        "ZERO_RENAME_DISTRIBUTE": "partition",
    }


def test_variables_a_person_sets() -> None:
    found = Handoff.decode(
        {
            "ZERO_RENAME_TABLE": "s3a://bucket/wh/flights/",
            "ZERO_RENAME_MODE": "overwrite",
            "ZERO_RENAME_PARTITIONS": "day=1; day=2",
            "ZERO_RENAME_ON_CONFLICT": "last-wins",
            "ZERO_RENAME_IDEMPOTENCY_KEY": "",
        }
    )
    assert found == Handoff(ROOT, None, Mode.REPLACE, ("day=1", "day=2"), OnConflict.LAST_WINS)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("TABLE", "bucket/t", "is a table's root, s3://bucket/prefix, not 'bucket/t'"),
        ("COMMITTER", " ", "is blank"),
        ("MODE", "upsert", "is one of append, overwrite"),
        ("PARTITIONS", '["day=1"', "begins like a JSON list and is none"),
        ("PARTITIONS", "day=1;;day=2", "has an empty item"),
        ("ON_CONFLICT", "win", "is one of fail, last_wins"),
        ("SUCCESS_MARKERS", "all", "is one of partition_and_table"),
        ("IDEMPOTENCY_KEY", "\t", "is blank"),
        ("ON_REPEAT", "auto", "is one of skip, replace_own, append"),
        ("MAP_INDEX", "x", "is a whole number, not 'x'"),
        ("TRY_NUMBER", "1.5", "is a whole number"),
        ("ENCRYPTION", "AES256", "is SSE-S3, SSE-KMS, DSSE-KMS, and with KMS"),
        ("ENCRYPTION", "SSE-S3 alias/lake", "is SSE-S3, SSE-KMS, DSSE-KMS, and with KMS"),
        ("DATA_ROOT", "fast", "is a data root, s3://bucket/prefix?endpoint="),
    ],
)
def test_a_variable_that_cannot_be_right_is_named(name: str, text: str, expected: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Handoff.decode({f"ZERO_RENAME_{name}": text})
    assert f"The environment variable ZERO_RENAME_{name} {expected}" in str(caught.value)
    assert "nothing was read or written" in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TABLE", "s3://AKIA:hush@bucket/t"),
        ("DATA_ROOT", "s3://fast/t?endpoint=http://me:hush@x"),
        ("DATA_ROOT", "s3://fast/t?password=hush"),
    ],
)
def test_a_password_in_a_url_is_not_repeated(name: str, text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Handoff.decode({f"ZERO_RENAME_{name}": text})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"idempotency_key": "a\0b"},
        {"idempotency_key": " "},
        {"idempotency_key": ""},
        {"dag": "\ud800"},
        {"partitions": ("day=1", "")},
    ],
)
def test_what_no_variable_can_carry_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=r"cannot carry .* nothing was submitted"):
        Handoff(**given).encode()


class TestALongList:
    def of_bytes(self, size: int) -> Handoff:
        """A handoff whose variable has so many bytes, as the kernel counts them."""
        rest = size - len('ZERO_RENAME_PARTITIONS=["p=1", "p="]\0')
        return Handoff(partitions=("p=1", "p=" + "x" * rest))

    def test_the_limit_is_the_systems(self) -> None:
        fits = self.of_bytes(LONGEST).encode()
        assert subprocess.run([sys.executable, "-c", ""], env=fits).returncode == 0
        (name, text), *_ = fits.items()
        if sys.platform == "linux" and os.sysconf("SC_PAGE_SIZE") == 4096:
            with pytest.raises(OSError, match="Argument list too long"):
                subprocess.run([sys.executable, "-c", ""], env={name: f"{text}x"})

    def test_above_it_is_refused_with_a_way_out(self) -> None:
        with pytest.raises(InvalidInputError, match=r"131,073 bytes with its 2 part") as caught:
            self.of_bytes(LONGEST + 1).encode()
        assert "ZERO_RENAME_PARTITIONS" in str(caught.value)
        assert "partition='*'" in str(caught.value.remedy)

    def test_ranks_of_as_many_partitions_fit(self) -> None:
        """Dagster gives each partition a rank of its own."""
        names = tuple(f"year=2013/month={n % 12}/day={n}" for n in range(3900))
        said = {name: RunRank(1.4e9 + 3600.0 * n, 1.7e9 + 1 / 3) for n, name in enumerate(names)}
        told = Handoff(partitions=names, run_rank=RunRanks(said))
        assert Handoff.decode(told.encode()) == told

    @pytest.mark.parametrize("text", ["zlib:", "zlib:eA==", "zlib:!", "zlib:eNoDAAAAAAE="])
    def test_damaged_ranks_are_refused(self, text: str) -> None:
        with pytest.raises(InvalidInputError, match="ZERO_RENAME_RUN_RANK is a number"):
            Handoff.decode({"ZERO_RENAME_RUN_RANK": text})

    def test_other_values_are_to_be_shortened(self) -> None:
        with pytest.raises(
            InvalidInputError, match="ZERO_RENAME_IDEMPOTENCY_KEY would have"
        ) as caught:
            Handoff(idempotency_key="ü" * LONGEST).encode()
        assert caught.value.remedy == "Shorten it."


def test_what_is_said_of_one_table_is_not_of_another() -> None:
    assert FULL.about(ROOT) is FULL
    assert FULL.about(TableRoot("bucket", "other")) == Handoff(committer="magic")
    anywhere = replace(FULL, table=None)
    assert anywhere.about(ROOT) is anywhere


def test_every_variable_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs/airflow/loading.md").read_text("utf-8")
    table = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `ZERO_RENAME_")]
    documented = {name for cell in table for name in re.findall(r"`(\w+)`", cell)}
    assert documented == {Handoff.variable(f.name) for f in fields(Handoff)} | {HANDOFF, S3_CLIENT}
