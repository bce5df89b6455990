"""The documented options are the code's, and the examples run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from docs.extensions.tables import SPARK, updated
from support.doc_examples import examples
from zero_rename.committer import Table
from zero_rename.spark import save

EXAMPLES = examples(SPARK)


def test_the_option_tables_are_up_to_date() -> None:
    assert updated(SPARK) == SPARK.read_text("utf-8")


@pytest.mark.spark
class TestExamples:
    """Each runs on a table of its own, with two days of flights."""

    @pytest.fixture
    def names(self, spark: Any, s3_bucket: Any) -> dict[str, Any]:
        frame = spark.sql(
            "select if(id % 2 = 0, 'AA', 'UA') carrier, 50 + id * 10 dep_delay, "
            "date_add(date'2012-12-31', cast(id % 3 as int)) day from range(6)"
        )
        save(frame, f"s3://{s3_bucket.name}/flights", partition_by=["day"])
        return {"spark": spark, "frame": frame}

    def run(self, name: str, names: dict[str, Any], bucket: str) -> dict[str, Any]:
        elsewhere = names.pop("s3a", "s3a://bucket")
        text = EXAMPLES[name].replace("s3a://bucket/", f"{elsewhere}/")
        exec(text.replace("s3://bucket/", f"s3://{bucket}/"), names)
        return names

    def test_load(self, names: dict[str, Any], bucket: str) -> None:
        found = self.run("load", names, bucket)
        assert sorted(found["late"]) == [("AA", 2), ("UA", 1)]

    def test_view(self, names: dict[str, Any], bucket: str) -> None:
        assert self.run("view", names, bucket)["worst"] == ("UA", 80.0)

    def test_stream(self, spark: Any, names: dict[str, Any], bucket: str, tmp_path: Path) -> None:
        names["frame"].write.json(str(tmp_path / "events"))
        events = spark.readStream.schema(names["frame"].schema).json(str(tmp_path / "events"))
        # This session has no S3A; a checkpoint may lie wherever Spark can write.
        names |= {"events": events, "s3a": f"file://{tmp_path}"}
        self.run("stream", names, bucket)
        assert Table(f"s3://{bucket}/events").scan().count() == 6
