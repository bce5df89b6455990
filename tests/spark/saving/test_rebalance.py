"""Distribution of rows by sessions of Spark Connect, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from zero_rename.spark.saving.distribution import distributed


class Frame:
    """A frame of Spark Connect that says what becomes of it."""

    def __init__(self, session: Any) -> None:
        self.sparkSession = session

    def _explain_string(self, extended: bool) -> str:
        return "== Analyzed Logical Plan ==\nday: int\nRange (0, 1)"

    def repartition(self, *columns: str) -> Any:
        return "repartitioned", *columns


class Session:
    def __init__(self) -> None:
        self.conf: dict[str, str] = {}

    def sql(self, sqlQuery: str, args: Any = None, **frames: Any) -> str:
        return sqlQuery.format(frame=sorted(frames))


class OldSession(Session):
    """A session before Spark 4, whose SQL takes no frames."""

    def sql(self, sqlQuery: str, args: Any = None) -> str:  # pyrefly: ignore[bad-override]
        raise AssertionError


def of(session: Session, *columns: str) -> Any:
    frame: Any = Frame(session)
    return distributed(frame, columns, None, "s3://bucket/table")


def test_rows_are_repartitioned_by_spark_connect_before_spark_4() -> None:
    """Merges and updates always distribute their rows."""
    assert of(OldSession(), "day") == ("repartitioned", "`day`")
    assert isinstance(of(OldSession()), Frame)


@pytest.mark.parametrize("column", ["day", "a{b}", "}{"])
def test_rows_are_rebalanced_by_columns_of_any_name(column: str) -> None:
    assert of(Session(), column) == f"SELECT /*+ REBALANCE(`{column}`) */ * FROM ['frame']"
