"""Index of a table's rows by key, by Arrow's kernels: no row is touched in Python."""

# pyright: reportAttributeAccessIssue=false
# (pyarrow makes the functions of its compute module at import, where no checker sees them.)

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


class KeyIndex:
    """Finds the row of a key, among rows of which no two have the same.

    :param keys: the key's columns, of equal lengths.
    :param null_safe: nulls are equal; else a key with a null is found by none.
    """

    def __init__(self, keys: Sequence[pa.Array], null_safe: bool) -> None:
        self._null_safe = null_safe
        #: By column: its values; and, of all columns so far, the codes of what occurs together.
        self._levels: list[tuple[pa.Array, pa.Array]] = []
        codes: pa.Array | None = None
        for key in keys:
            values = key.unique()
            own = self._codes(key, values)
            pairs = own if codes is None else self._paired(codes, own, len(values))
            together = pairs.drop_null().unique()
            self._levels.append((values, together))
            codes = pc.index_in(pairs, together, skip_nulls=True)
        assert codes is not None
        #: The code of each row's key; null where it matches nothing.
        self.codes = codes
        order = pc.array_sort_indices(codes)
        known = len(codes) - codes.null_count
        #: The row of each code, where each occurs once.
        self._rows = order.slice(0, known).cast(pa.int64())

    def _codes(self, key: pa.Array, values: pa.Array) -> pa.Array:
        return pc.index_in(key, values, skip_nulls=not self._null_safe).cast(pa.int64())

    @staticmethod
    def _paired(codes: pa.Array, own: pa.Array, most: int) -> pa.Array:
        return pc.add(pc.multiply(codes.cast(pa.int64()), most), own)

    def find(self, keys: Sequence[pa.Array]) -> pa.Array:
        """The row of each key; null where there is none."""
        codes: pa.Array | None = None
        for key, (values, together) in zip(keys, self._levels, strict=True):
            own = self._codes(key, values)
            pairs = own if codes is None else self._paired(codes, own, len(values))
            codes = pc.index_in(pairs, together, skip_nulls=True)
        assert codes is not None
        return self._rows.take(codes)


def are_different(old: pa.Array, new: pa.Array) -> pa.Array:
    """Of each pair of values whether they are not the same: null is null, and NaN is NaN."""
    if pa.types.is_nested(old.type):
        pairs = zip(old.to_pylist(), new.to_pylist(), strict=True)
        return pa.array([a != b for a, b in pairs], pa.bool_())
    different = pc.fill_null(pc.not_equal(old, new), False)
    if pa.types.is_floating(old.type):
        both = pc.fill_null(pc.and_(pc.is_nan(old), pc.is_nan(new)), False)
        different = pc.and_not(different, both)
    return pc.or_(different, pc.xor(old.is_null(), new.is_null()))
