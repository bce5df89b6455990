"""Values written as texts: lists come back whatever is in them."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zero_rename.committer import InvalidInputError, JobSpec, Mode, OnConflict
from zero_rename.committer.format import text_values as texts
from zero_rename.committer.format.text_values import NAMES, PATHS

#: With the characters that make a difference more often than others.
ITEMS = st.lists(st.text(st.sampled_from(',;[]" \\%=\n\té') | st.characters(), min_size=1))


@given(ITEMS)
@example(["a,b", "c"])
@example(["[a"])
@example([" [a", "b"])
@example(["a", "b "])
@example(["\u2028"])
def test_lists_come_back(items: list[str]) -> None:
    for kind in (NAMES, PATHS):
        assert kind.decode(kind.encode(items)) == tuple(items)
        assert kind.decode(json.dumps(items)) == tuple(items)


def test_lists_are_written_as_people_write_them_where_that_will_do() -> None:
    assert NAMES.encode(["year", "a;b", "c d"]) == "year,a;b,c d"
    assert PATHS.encode(["day=1,2", "day=[3"]) == "day=1,2;day=[3"
    assert PATHS.encode([]) == ""
    assert NAMES.encode(["a,b", "é"]) == '["a,b", "\\u00e9"]'


def test_lists_that_people_write() -> None:
    assert NAMES.decode(" year, month ,,") == ("year", "month")
    assert PATHS.decode("day=1; day=a,b") == ("day=1", "day=a,b")
    assert PATHS.decode("") == ()
    assert NAMES.decode(' ["a"] ') == ("a",)


@pytest.mark.parametrize("text", ["a,,b", ",a", "['a']", "[1]", '["a"', '[""]', "[[]]"])
def test_lists_that_cannot_be_right(text: str) -> None:
    with pytest.raises(ValueError, match=r"empty item|JSON list"):
        NAMES.decode(text)


def test_an_empty_item_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="empty item"):
        NAMES.encode(["a", ""])


@pytest.mark.parametrize(
    ("word", "mode"),
    [
        ("append", Mode.APPEND),
        ("replace", Mode.REPLACE),
        (" Overwrite ", Mode.REPLACE),
        ("fail_if_exists", Mode.FAIL_IF_EXISTS),
        ("fail-if-exists", Mode.FAIL_IF_EXISTS),
        ("error", Mode.FAIL_IF_EXISTS),
        ("errorIfExists", Mode.FAIL_IF_EXISTS),
    ],
)
def test_a_mode_has_names_outside(word: str, mode: Mode) -> None:
    assert texts.mode(word) is mode
    assert Mode.parse(word) is mode
    assert JobSpec(None, word).mode is mode  # type: ignore[arg-type]


def test_a_mode_that_is_none() -> None:
    with pytest.raises(ValueError, match="is one of append, overwrite"):
        texts.mode("upsert")
    with pytest.raises(InvalidInputError, match=r"mode='upsert' is unknown.*one of append"):
        Mode.parse("upsert")


def test_other_words() -> None:
    assert texts.whole(" -12 ") == -12
    assert texts.choice(OnConflict, "Last-Wins") is OnConflict.LAST_WINS
    with pytest.raises(ValueError, match="is a whole number"):
        texts.whole("1.5")
    with pytest.raises(ValueError, match="is one of fail, last_wins"):
        texts.choice(OnConflict, "both")
