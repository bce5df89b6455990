"""A DAG that runs after each commit to a table, from another DAG, Spark or a notebook.

The triggerer polls the table every minute. The run's ``triggering_asset_events`` have the commits
since the last run: each event's payload has reports of jobs, with partitions and versions.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from zero_rename.provider.assets.commit_trigger import TableCommitTrigger

#: A separate asset: loads make events of the table's own asset, which would start the DAG twice.
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
        """Return each committed partition once, with the entry of its last version."""
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
        """Describe a changed partition. Put your own work here."""
        return f"{partition['rows']} new rows in {partition['partition']}"

    summarise.expand(partition=changed())
