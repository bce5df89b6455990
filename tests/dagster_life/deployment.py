"""Processes of a whole Dagster, code server, daemon and webserver, and its GraphQL API."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil

from support.waiting import until
from tools.server_process import free_port, tie

from .place import EXAMPLES, Place

_SETTINGS = """
telemetry: {enabled: false}
run_monitoring: {enabled: true, poll_interval_seconds: 1, max_resume_run_attempts: 0}
run_retries: {enabled: true, max_retries: 2}
"""
_BACKFILL = """
mutation($given: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $given) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}"""
_RUN = """
mutation($given: ExecutionParams!) {
  launchRun(executionParams: $given) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}"""
_AGAIN = """
mutation($given: ReexecutionParams!) {
  launchRunReexecution(reexecutionParams: $given) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}"""
_ERRORS = """
query($id: ID!) {
  logsForRun(runId: $id) {
    ... on EventConnection {
      events { ... on ExecutionStepFailureEvent { error { message causes { message } } } }
    }
  }
}"""
_STATUS = """
query($id: String!) {
  partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } }
}"""
_RUNS = """
query($filter: RunsFilter!) {
  runsOrError(filter: $filter) {
    ... on Runs {
      results { runId status tags { key value } assetSelection { path } startTime endTime }
    }
  }
}"""
_SENSOR = """
mutation($given: SensorSelector!) {
  startSensor(sensorSelector: $given) {
    __typename
    ... on PythonError { message }
  }
}"""
_VERSION = "query { version }"
#: The place of the example's definitions.
_REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": "definitions.py"}


@dataclass(frozen=True)
class Run:
    """A run as Dagster has it."""

    id: str
    status: str
    tags: dict[str, str]
    assets: list[str]

    @property
    def days(self) -> tuple[str, str]:
        """The ends of its range of partition keys."""
        one = self.tags.get("dagster/partition", "")
        names = ("start", "end")
        first, last = (self.tags.get(f"dagster/asset_partition_range_{n}", one) for n in names)
        return first, last


@dataclass
class Deployment:
    """A running Dagster with the example project."""

    place: Place
    address: str
    api: httpx.Client
    processes: list[psutil.Popen] = field(default_factory=list)

    def start(self, name: str, *words: str) -> None:
        with (self.place.folder / f"{name}.log").open("ab") as log:
            self.processes.append(
                psutil.Popen(
                    [*tie(), self.place.command(name), *words],
                    env=dict(self.place.variables),
                    cwd=self.place.folder,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def stop(self) -> None:
        """End every process, and what it started."""
        ours = self.descendants() | set(self.processes)
        for process in ours:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(list(ours), timeout=20)

    def descendants(self) -> set[psutil.Process]:
        """What daemon and webserver have started: code servers and runs."""
        found: set[psutil.Process] = set()
        for process in self.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                found |= set(process.children(recursive=True))
        return found

    def ask(self, query: str, **variables: Any) -> Any:
        for process in self.processes:
            assert process.poll() is None, f"{process.args} has ended"
        answer = self.api.post("/graphql", json={"query": query, "variables": variables}).json()
        assert "errors" not in answer, answer["errors"]
        return answer["data"]

    def answers(self) -> bool:
        try:
            return bool(self.ask(_VERSION)["version"])
        except httpx.TransportError:
            return False

    def backfill(self, keys: Sequence[str], asset: str = "flights") -> list[Run]:
        """Launch a backfill of some partitions of an asset, and wait for its end. Its runs."""
        given = {"assetSelection": [{"path": [asset]}], "partitionNames": list(keys)}
        answer = self.ask(_BACKFILL, given=given)["launchPartitionBackfill"]
        backfill = answer.get("backfillId")
        assert backfill, answer

        def ended() -> bool:
            found = self.ask(_STATUS, id=backfill)["partitionBackfillOrError"]
            assert found["status"] not in ("FAILED", "COMPLETED_FAILED", "CANCELED"), found
            return found["status"] == "COMPLETED_SUCCESS"

        until(f"the backfill {backfill}", ended)
        return self.runs({"dagster/backfill": backfill})

    def launch(
        self, job: str = "january", config: Any = None, resources: Any = None, **tags: str
    ) -> str:
        """Launch a run of a job, and return its id at once.

        :param config: of the assets' functions, by their names.
        :param resources: what it says of resources, by their names.
        :param tags: of the run, without ``dagster/``.
        """
        selector = {**_REPOSITORY, "jobName": job}
        told = [{"key": f"dagster/{name}", "value": value} for name, value in tags.items()]
        given: dict[str, Any] = {"selector": selector, "executionMetadata": {"tags": told}}
        ops = {name: {"config": said} for name, said in (config or {}).items()}
        if ops or resources:
            given["runConfigData"] = {"ops": ops, "resources": resources or {}}
        answer = self.ask(_RUN, given=given)["launchRun"]
        assert "run" in answer, answer
        return answer["run"]["runId"]

    def execute_again(self, run: str) -> str:
        """Launch a run again as a whole, as the page does it, and return the new one's id."""
        given = {"parentRunId": run, "strategy": "ALL_STEPS"}
        answer = self.ask(_AGAIN, given=given)["launchRunReexecution"]
        assert "run" in answer, answer
        return answer["run"]["runId"]

    def errors(self, run: str) -> list[str]:
        """The messages of a run's failed steps, each with those of its causes."""
        events = self.ask(_ERRORS, id=run)["logsForRun"]["events"]
        found = [it["error"] for it in events if it.get("error")]
        return ["".join(one["message"] for one in (it, *it["causes"])) for it in found]

    def start_sensor(self, name: str) -> None:
        """Let the daemon tick a sensor."""
        answer = self.ask(_SENSOR, given={**_REPOSITORY, "sensorName": name})["startSensor"]
        assert answer["__typename"] == "Sensor", answer

    def runs(self, tags: dict[str, str]) -> list[Run]:
        """All runs that have these tags, the first one first; all that there are without any."""
        wanted = [{"key": key, "value": value} for key, value in tags.items()]
        return self._runs({"tags": wanted})

    def run(self, run: str) -> Run:
        [found] = self._runs({"runIds": [run]})
        return found

    def _runs(self, wanted: dict[str, Any]) -> list[Run]:
        found = self.ask(_RUNS, filter=wanted)["runsOrError"]["results"]
        return [
            Run(
                it["runId"],
                it["status"],
                {tag["key"]: tag["value"] for tag in it["tags"]},
                [name["path"][-1] for name in it["assetSelection"] or ()],
            )
            for it in reversed(found)
        ]


@contextlib.contextmanager
def deployment(place: Place) -> Iterator[Deployment]:
    """Start daemon and webserver with the example project; ended with the block.

    :raises NeverError: it does not answer.
    """
    (place.home / "dagster.yaml").write_text(_SETTINGS)
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    workspace = ["-f", str(EXAMPLES / "dagster_flights" / "definitions.py")]
    with httpx.Client(base_url=address, timeout=60, trust_env=False) as api:
        made = Deployment(place, address, api)
        try:
            made.start("dagster-webserver", "-h", "127.0.0.1", "-p", str(port), *workspace)
            # The first one makes the instance's databases, and would not like company.
            until("the webserver", made.answers)
            made.start("dagster-daemon", "run", *workspace)
            yield made
        except BaseException:
            for log in place.folder.glob("*.log"):
                print(f"--- {log.name}\n{log.read_text('utf-8', 'replace')[-3000:]}")
            raise
        finally:
            made.stop()


def version(place: Place) -> str:
    """Dagster's, ``1.13.27``."""
    code = "import dagster; print(dagster.__version__)"
    python = [place.command("python"), "-c", code]
    return subprocess.run(python, capture_output=True, text=True, check=True).stdout.strip()
