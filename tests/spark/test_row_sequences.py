"""Any sequence of merges, updates, deletions and loads by Spark, against a model."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from support import row_model
from support.row_model import Delete, Load, Merge, Model, Step, full_sequences
from zero_rename.committer import InvalidInputError, Table
from zero_rename.spark import delete, merge, update

pytestmark = pytest.mark.spark
_TYPES = "k long, j string, v double, p string, n int, op string, at int"
_numbers = itertools.count(1)
#: How many are tried; where others try them, too, one will do.
_TRIED = int(os.environ.get("ROW_SEQUENCES", "2"))


@settings(
    max_examples=_TRIED,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(sequence=full_sequences(rows=14))
def test_any_sequence_leaves_what_a_dictionary_says(
    spark: Any, s3_bucket: Any, sequence: tuple[Model, list[row_model.Row], list[Step]]
) -> None:
    model, first, steps = sequence
    table = Table(f"s3://{s3_bucket.name}/rows{next(_numbers)}")
    model.load(table, first, replaces=False)
    model = model.after(Load(first, replaces=False))
    for step in steps:
        before, states = table.snapshot().versions, model
        try:
            model = model.after(step)
        except InvalidInputError:
            with pytest.raises(InvalidInputError, match="several times"):
                _carry_out(spark, table, states, step)
            assert table.snapshot().versions == before
            continue
        _carry_out(spark, table, states, step)
        assert row_model.held(table) == model.texts
        if isinstance(step, Load):
            continue
        after = table.snapshot().versions
        assert {it for it in after if before.get(it) != after[it]} == states.changed(model)


def _carry_out(spark: Any, table: Table, model: Model, step: Step) -> None:
    url = table.root.url
    if isinstance(step, Load):
        model.load(table, step.rows, step.replaces)
    elif isinstance(step, Delete):
        delete(url, where=f"{step.column} = {_literal(step.value)}")
    elif isinstance(step, Merge):
        source = model.source(step)
        types = ", ".join(f for f in _TYPES.split(", ") if f.split()[0] in source.column_names)
        rows = [tuple(row.values()) for row in source.to_pylist()]
        merge(
            spark.createDataFrame(rows, types),
            url,
            on=step.on,
            when_matched=step.matched,
            when_not_matched=step.not_matched,
            delete_when="op = 'D'" if step.deletes else None,
            latest_by="at" if step.latest else None,
            null_safe=step.null_safe,
            across_partitions=step.across,
            schema_mode=None if step.columns is None else "merge",
        )
    else:
        update(url, set={step.column: _literal(step.value)}, where=f"k >= {step.least}")


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"double('{value}')"
    return f"'{value}'" if isinstance(value, str) else str(value)
