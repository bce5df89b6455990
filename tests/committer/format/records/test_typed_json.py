"""Dataclasses from and to JSON objects: what each hint and mark takes and refuses."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from enum import StrEnum
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zero_rename.committer.format.records.marks import (
    DEFAULTED,
    ENCLOSING,
    LEFT_OUT,
    Checked,
    Converted,
    Count,
    Named,
    at_least,
)
from zero_rename.committer.format.records.typed_json import Unfit, from_members, to_members


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def halved(text: Any) -> int:
    if not isinstance(text, str):
        raise Unfit("is not halves", "inner")
    return int(text) // 2


@dataclass(frozen=True)
class Leaf:
    name: Annotated[str, ENCLOSING]
    size: Count
    even: Annotated[int, Checked(lambda n: n % 2 == 0, "is odd")] = 0


@dataclass(frozen=True)
class Tree:
    name: str
    flag: bool
    least: Annotated[int, at_least(-1)]
    number: float
    colour: Colour
    maybe: str | None
    words: tuple[str, ...]
    leaves: tuple[Leaf, ...]
    counts: Mapping[str, Count]
    kept: Mapping[str, Any]
    half: Annotated[int, Converted(lambda n: str(2 * n), halved)]
    other: Annotated[int, Named("otherName")]
    one: Leaf | None = None
    before: Annotated[str, DEFAULTED] = "default"
    rare: Annotated[tuple[str, ...], LEFT_OUT] = ()
    notes: Annotated[Mapping[str, str | None], DEFAULTED] = field(default_factory=dict)


TREE = Tree(
    name="oak",
    flag=True,
    least=-1,
    number=1.5,
    colour=Colour.RED,
    maybe=None,
    words=("ü",),
    leaves=(Leaf("oak", 1), Leaf("oak", 2, 4)),
    counts={"a": 0},
    kept={"a": [None, True, 1, 1.5, "ü", {}]},
    half=21,
    other=-7,
)
MEMBERS: dict[str, Any] = {
    "name": "oak",
    "flag": True,
    "least": -1,
    "number": 1.5,
    "colour": "red",
    "maybe": None,
    "words": ["ü"],
    "leaves": [{"size": 1, "even": 0}, {"size": 2, "even": 4}],
    "counts": {"a": 0},
    "kept": {"a": [None, True, 1, 1.5, "ü", {}]},
    "half": "42",
    "otherName": -7,
    "one": None,
    "before": "default",
    "notes": {},
}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_a_record_and_its_members() -> None:
    assert to_members(TREE) == MEMBERS
    assert from_members(Tree, json.loads(json.dumps(MEMBERS))) == TREE


def test_what_is_left_out_at_its_default_is_written_else() -> None:
    members = MEMBERS | {"rare": ["x"]}
    assert from_members(Tree, members).rare == ("x",)
    assert to_members(from_members(Tree, members)) == members


def test_members_nobody_asks_for_are_passed_over() -> None:
    assert from_members(Tree, MEMBERS | {"later": nested(100), "name ": "\ud800"}) == TREE


@pytest.mark.parametrize("lacking", ["maybe", "one", "before", "rare", "notes"])
@pytest.mark.parametrize("null", [False, True])
def test_what_may_be_missing_may_be_null(lacking: str, null: bool) -> None:
    members = {name: value for name, value in MEMBERS.items() if name != lacking}
    assert from_members(Tree, members | ({lacking: None} if null else {})) == TREE


def test_an_integer_is_taken_for_a_float() -> None:
    number = from_members(Tree, MEMBERS | {"number": 2}).number
    assert (number, type(number)) == (2.0, float)


@pytest.mark.parametrize(
    ("member", "value", "path", "what"),
    [
        ("name", None, "name", "is missing"),
        ("name", 1, "name", "is not a string"),
        ("name", "a\ud800", "name", "has half of a surrogate pair"),
        ("flag", 1, "flag", "is not true or false"),
        ("flag", None, "flag", "is missing"),
        ("least", -2, "least", "is less than -1"),
        ("least", True, "least", "is not an integer"),
        ("least", 1.0, "least", "is not an integer"),
        ("least", 10**400, "least", "is greater than any number that a store could have reached"),
        ("number", "1", "number", "is not a number"),
        ("number", True, "number", "is not a number"),
        ("number", math.inf, "number", "is not a finite number"),
        ("number", math.nan, "number", "is not a finite number"),
        ("number", 10**400, "number", "is not a finite number"),
        ("colour", "green", "colour", "is 'green', not a Colour"),
        ("colour", 1, "colour", "is not a string"),
        ("colour", ["red"], "colour", "is not a string"),
        ("maybe", 1, "maybe", "is not a string"),
        ("words", "ab", "words", "is not a list"),
        ("words", ["a", 1], "words[1]", "is not a string"),
        ("words", ["a", None], "words[1]", "is not a string"),
        ("leaves", {}, "leaves", "is not a list"),
        ("leaves", [1], "leaves[0]", "is not an object"),
        ("leaves", [{"size": 1, "even": 0}, {"even": 0}], "leaves[1].size", "is missing"),
        ("leaves", [{"size": -1, "even": 0}], "leaves[0].size", "is negative"),
        ("leaves", [{"size": 1, "even": 3}], "leaves[0].even", "is odd"),
        ("leaves", [{"size": 1}], "leaves[0].even", "is missing"),
        ("one", {"size": "1", "even": 0}, "one.size", "is not an integer"),
        ("counts", [], "counts", "is not an object"),
        ("counts", {"a": -1}, "counts.a", "is negative"),
        ("counts", {"a": None}, "counts.a", "is not an integer"),
        ("counts", {"\ud800": 1}, "counts.\ud800", "has half of a surrogate pair"),
        ("kept", {"a": nested(32)}, "kept.a", "is nested more than 32 deep"),
        ("kept", {"a": ["\ud800"]}, "kept.a", "has half of a surrogate pair"),
        ("kept", {"a": {"\ud800": 1}}, "kept.a", "has half of a surrogate pair"),
        ("kept", {"a": [math.nan]}, "kept.a", "is not a finite number"),
        ("half", 42, "half.inner", "is not halves"),
        ("half", "x", "half", "cannot be read: invalid literal for int() with base 10: 'x'"),
        ("otherName", None, "otherName", "is missing"),
        ("notes", {"a": 1}, "notes.a", "is not a string"),
        ("rare", "x", "rare", "is not a list"),
    ],
)
def test_what_is_refused_and_where(member: str, value: Any, path: str, what: str) -> None:
    with pytest.raises(Unfit) as caught:
        from_members(Tree, MEMBERS | {member: value})
    assert (caught.value.path, caught.value.what) == (path, what)


def test_as_deep_as_it_may_be() -> None:
    assert from_members(Tree, MEMBERS | {"kept": {"a": nested(31)}}).kept == {"a": nested(31)}


@pytest.mark.parametrize("value", [None, [], "x", 1])
def test_what_is_no_object(value: Any) -> None:
    with pytest.raises(Unfit, match="is not an object"):
        from_members(Tree, value)


@given(
    st.builds(
        Leaf,
        st.just("oak"),
        st.integers(0, 2**53),
        st.integers(-(2**52), 2**52).map(lambda n: 2 * n),
    ),
    st.dictionaries(st.text(), st.integers(0, 2**53)),
    st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.text(),
    st.sampled_from(Colour),
)
def test_any_record_is_read_back(
    leaf: Leaf, counts: dict[str, int], number: float, maybe: str | None, colour: Colour
) -> None:
    tree = Tree(
        "oak", False, 0, number, colour, maybe, (), (leaf,), counts, {}, 3, 4, leaf, "b", ("r",)
    )
    assert from_members(Tree, json.loads(json.dumps(to_members(tree)))) == tree


@pytest.mark.parametrize("hint", [int | str | None, tuple[str, str], Mapping[int, str], bytes])
def test_a_hint_that_nothing_reads_is_said_at_once(hint: Any) -> None:
    odd = make_dataclass("Odd", [("member", hint)], frozen=True)
    with pytest.raises(TypeError):
        from_members(odd, {})
