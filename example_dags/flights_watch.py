"""A DAG that runs when anybody commits to a table: another DAG, Spark, a notebook.

The triggerer looks every minute. What has been committed since the last run is in the run's
``triggering_asset_events``: each event's payload has reports of jobs, with partitions and versions.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from zero_rename.provider.assets.commit_trigger import TableCommitTrigger

#: An asset of its own: what loads tell of the table's own asset would start the DAG once more.
COMMITS = Asset(
    "flights_commits",
    watchers=[AssetWatcher(name="flights_commits", trigger=TableCommitTrigger(table="flights"))],
)

with DAG(
    dag_id="flights_watch",
    schedule=[COMMITS],
    catchup=False,
    default_args={"retries": 1},
    tags=["example", "zero_rename"],
    doc_md=__doc__,
):

    @task
    def changed(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        """The partitions that were committed, each once, with its last version and its rows
        there."""
        events = [event for found in triggering_asset_events.values() for event in found]
        reports = [report for event in events for report in event.extra["payload"]["commits"]]
        latest: dict[str, dict[str, Any]] = {}
        for report in reports:
            for entry in report["partitions"]:
                known = latest.get(entry["partition"])
                if known is None or known["version"] < entry["version"]:
                    latest[entry["partition"]] = entry
        return sorted(latest.values(), key=lambda entry: entry["partition"])

    @task
    def summarise(partition: dict[str, Any]) -> str:
        """Whatever is to be done with a partition that has changed."""
        return f"{partition['rows']} new rows in {partition['partition']}"

    summarise.expand(partition=changed())
