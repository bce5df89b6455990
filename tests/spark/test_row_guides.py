"""The guides on upserts and deletes, run as they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.doc_examples import examples
from zero_rename import Table

pytestmark = pytest.mark.spark
GUIDES = Path(__file__).parents[2] / "docs" / "guides"
UPSERTS, DELETES = (examples(GUIDES / f"{name}.md") for name in ("upserts", "deletes"))


def test_they_run_one_after_the_other(spark: Any, bucket: str) -> None:
    def run(text: str) -> dict[str, Any]:
        names = {"spark": spark}
        exec(text.replace("s3://bucket/", f"s3://{bucket}/"), names)
        return names

    def held() -> set[tuple[int, str]]:
        rows = Table(f"s3://{bucket}/orders").to_arrow()
        return {(row["id"], row["state"]) for row in rows.to_pylist()}

    done: Any = run(UPSERTS["merge"])["done"]
    assert held() == {(1, "sent"), (2, "open"), (4, "open")}
    assert (done.rows.inserted, done.rows.updated, done.rows.deleted) == (1, 1, 1)
    done = run(DELETES["delete"])["done"]
    assert done.rows.deleted == 1
    assert held() == {(2, "open"), (4, "OPEN")}
    done = run(UPSERTS["merge-python"])["done"]
    assert (done.rows.inserted, done.rows.updated) == (1, 1)
    assert held() == {(2, "open"), (4, "paid")}
    run(DELETES["delete-python"])
    assert held() == {(4, "paid")}
