"""Rows of columns that have an order, and conditions over them, for property tests."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

#: Texts of which a record does not hold all, and what it has to escape.
LONG = ["a" * 40, "a" * 31 + "ü" * 9, "😀" * 33, "\U0010ffff" * 40, "b" * 31 + "\ud7ffb", "%,&=\n"]

#: A column of each type that has an order, with values that lie close together.
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int32(), st.integers(-3, 3)),
    "u": (pa.uint64(), st.sampled_from([0, 1, 2**63, 2**64 - 1])),
    "x": (pa.float64(), st.sampled_from([-math.inf, -0.0, 0.0, 1.0, 2.5, math.nan])),
    "y": (pa.float32(), st.sampled_from([-1.0, 0.0, 1.0, math.nan])),
    "d": (pa.decimal128(9, 2), st.sampled_from([Decimal("-1.50"), Decimal("0"), Decimal("2.25")])),
    "s": (pa.string(), st.sampled_from(["", "a", "b", "ü", "😀", *LONG])),
    "t": (pa.timestamp("us", "UTC"), st.sampled_from([dt.datetime(1, 1, 1, tzinfo=dt.UTC)])),
    "day": (pa.date32(), st.sampled_from([dt.date(2013, 1, n) for n in (1, 2, 3)])),
    "b": (pa.bool_(), st.booleans()),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in TYPES.items()])
ROWS = st.lists(
    st.fixed_dictionaries({n: st.none() | values for n, (_, values) in TYPES.items()}),
    min_size=1,
    max_size=12,
)


@st.composite
def comparisons(draw: st.DrawFn, names: tuple[str, ...]) -> pc.Expression:
    name = draw(st.sampled_from(names))
    kind, values = TYPES[name]
    field, value = pc.field(name), pa.scalar(draw(values), kind)
    several = pa.array(draw(st.lists(st.none() | values, max_size=3)), kind)
    choices = [
        *(field == value, field != value, field < value, field <= value, field > value),
        *(field >= value, field.is_null(), field.is_valid(), field.isin(several)),
    ]
    if pa.types.is_floating(kind):
        choices += [field.is_nan(), field.is_null(nan_is_null=True), field * -1 > value]
    return draw(st.sampled_from(choices))


def conditions(*names: str) -> st.SearchStrategy[pc.Expression]:
    return st.recursive(
        comparisons(names),
        lambda inner: (
            inner.map(lambda one: ~one)
            | st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1])
            | st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1])
        ),
        max_leaves=3,
    )
