"""Assets that are tables: their definitions, and how many commits a backfill of them makes."""

from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.tags import BACKFILL_ID_TAG

from dagster_zero_rename import ZeroRenameResource, zero_rename_asset
from support.dagster_loads import DAYS
from support.dagster_loads import load_a_day as load
from zero_rename.committer import InvalidInputError
from zero_rename.lineage import look_up

pytestmark = pytest.mark.memory_s3

DAY = "2013-01-01"


def test_its_backfill_is_one_run_unless_it_says_otherwise() -> None:
    asset = zero_rename_asset(partitions_def=DAYS, partition_expr="day")(load)
    assert asset.backfill_policy == dg.BackfillPolicy.single_run()
    five = dg.BackfillPolicy.multi_run(5)
    asset = zero_rename_asset(partitions_def=DAYS, backfill_policy=five)(load)
    assert asset.backfill_policy == five


def test_its_metadata_say_how_it_is_written(zero: ZeroRenameResource) -> None:
    made = zero_rename_asset(
        partitions_def=DAYS,
        partition_expr="day",
        table="days",
        mode="append",
        metadata={"owner": "us"},
    )(load)
    for _ in range(2):
        dg.materialize([made], resources={"zero": zero}, partition_key=DAY)
    assert zero.table("days").to_arrow()["number"].to_pylist() == [1, 1]
    assert made.metadata_by_key[made.key]["owner"] == "us"


def test_its_code_version_is_on_record(zero: ZeroRenameResource) -> None:
    made = dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"}, code_version="v4")(
        load
    )
    dg.materialize([made], resources={"zero": zero}, partition_key=DAY)
    (found,) = look_up([zero.table("load_a_day").root.url], zero.client()).partitions()
    assert found.code_versions == ("v4",)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"partition_expr": "day"}, "partition_expr='day', and no partitions"),
        ({"mode": "upsert"}, "mode='upsert' is unknown"),
    ],
)
def test_a_definition_that_cannot_be_right(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        zero_rename_asset(**given)(load)


@pytest.mark.parametrize(
    ("policy", "tags", "warned"),
    [
        (None, {BACKFILL_ID_TAG: "b"}, True),
        (None, {}, False),
        (dg.BackfillPolicy.multi_run(1), {BACKFILL_ID_TAG: "b"}, False),
    ],
)
def test_a_backfill_of_many_commits_that_nobody_asked_for_is_told(
    zero: ZeroRenameResource,
    instance: dg.DagsterInstance,
    policy: Any,
    tags: dict[str, str],
    warned: bool,
) -> None:
    plain = dg.asset(
        partitions_def=DAYS, metadata={"partition_expr": "day"}, backfill_policy=policy
    )(load)
    done = dg.materialize(
        [plain], resources={"zero": zero}, instance=instance, partition_key=DAY, tags=tags
    )
    said = [record.user_message for record in instance.all_logs(done.run_id)]
    assert any("a run and a commit of each partition" in it for it in said) is warned
