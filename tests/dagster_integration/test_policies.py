"""Walk of docs/policies.md: what an application that Dagster submits is told of each policy, with
each committer; what is refused submits nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_zero_rename import SparkPipesClient, ZeroRenameResource
from dagster_zero_rename.resource import written_metadata
from docs.extensions.policies import CASES, WORDS, Case, refusal, value_text
from support.fake_spark import IDLE, FakeSpark
from zero_rename.committer.format.handoff import Handoff
from zero_rename.s3a.runs import ledger

pytestmark = pytest.mark.memory_s3

DAYS = dg.StaticPartitionsDefinition(["1", "2"])


def settings(call: Mapping[str, Any]) -> dict[str, str]:
    """What Spark reads of a properties file."""
    texts = [file["text"] for name, file in call["files"].items() if name.endswith("properties")]
    lines = (line.replace(" ", "=", 1) for text in texts for line in text.splitlines())
    return dict(line.partition("=")[::2] for line in lines)


@pytest.mark.parametrize(
    ("case", "committer"), [(it, word) for it in CASES["dagster"] for word in WORDS], ids=str
)
def test_application_of_dagster_is_told_or_refused(
    zero: ZeroRenameResource, spark: FakeSpark, tmp_path: Path, case: Case, committer: str
) -> None:
    spark.runs(IDLE)
    application = tmp_path / "job.py"
    application.touch()
    own: dict[str, Any] = {"table_root": zero.table_root, "committer": committer}
    resource = ZeroRenameResource(**own, **case.connection)
    said = {"mode": None, "merge_on": None, "catalog": None, **case.said}
    metadata = {"partition_expr": "day", **written_metadata(**said)}
    client = SparkPipesClient(zero_rename=resource, master="local[1]")

    @dg.asset(partitions_def=DAYS, metadata=metadata)
    def flights(context: dg.AssetExecutionContext):
        return client.run(context, application=str(application))

    error = refusal("dagster", case, committer)
    result = dg.materialize([flights], partition_key="1", raise_on_error=False)
    if error is not None:
        (failed,) = result.filter_events(lambda event: event.is_step_failure)
        assert str(error.message) in str(failed.step_failure_data.error)
        assert spark.calls() == []
        return
    (call,) = spark.calls()
    handoff, table = Handoff.decode(call["env"]), resource.table("flights")
    assert handoff.partitions == ("day=1",)
    assert handoff.idempotency_key is not None
    for member, value in case.seen(committer).items():
        kind, _, inner = member.partition(".")
        if kind == "setting":
            assert settings(call)[inner] == value
        elif kind == "record":
            (tried,) = table.run(ledger.tries_of(table.root, handoff.idempotency_key))
            assert getattr(tried.record, inner) == value
        else:
            assert value_text(getattr(handoff, member)) == value
