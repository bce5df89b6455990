"""What a real Dagster does with the examples; each looks at the rows afterwards."""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo.dataset import RowDigest, content, partition_of
from support.lake_readers import lake_readers
from support.shared_table import SharedTable
from support.waiting import until
from zero_rename.tables import DeltaTable

from .deployment import Deployment, Run
from .place import EXAMPLES, Place

#: Which read the table of days after each scene.
ENGINES = ("delta-rs", "polars", "duckdb")
#: Tag of a run that the sensor has asked for.
_RECOMPUTE = "zero_rename/recompute"
#: Flights and their delay, by what they are of.
Rows = dict[Any, tuple[int, float]]
_COMPONENT = "dagster_zero_rename.SparkTableComponent"


@dataclass
class World:
    """:param expected: the content of each partition that has been loaded, by the CSV file."""

    place: Place
    dagster: Deployment
    expected: dict[str, RowDigest] = field(default_factory=dict)

    @property
    def table(self) -> DeltaTable:
        return self.named("flights")

    def named(self, name: str) -> DeltaTable:
        return DeltaTable(f"{self.place.root}/{name}", self.place.store.client())

    def rows_of(self, name: str) -> list[dict[str, Any]]:
        return self.named(name).scan().to_arrow().to_pylist()

    def versions(self, days: Sequence[int]) -> list[int]:
        """How often each day was changed."""
        table = self.table
        jobs = [it.job for it in table.history() if it.job] if table.exists() else []
        done = [it for job in jobs if (it := table.result(job)) is not None]
        changed = Counter(it.partition for job in done for it in job.partitions)
        return [changed[path_of(day)] for day in days]

    def day(self, day: int) -> RowDigest:
        """The content of a day."""
        rows = self.rows_of("flights")
        return content([row for row in rows if partition_of(row) == path_of(day)])

    def derived(self) -> tuple[Rows, Rows]:
        """The weeks and the carriers, as they are."""
        weekly, carriers = (self.rows_of(name) for name in ("weekly_delays", "carriers"))
        weeks = {(str(it["week"]), it["carrier"]): (it["flights"], it["delay"]) for it in weekly}
        return _rounded(weeks), _rounded(
            {it["carrier"]: (it["flights"], it["worst_delay"]) for it in carriers}
        )

    def rebuilt(self) -> tuple[Rows, Rows]:
        """The weeks that are there and the carriers, as the days say."""
        made = {week for week, _ in self.derived()[0]}
        late: dict[tuple[str, str], list[int | None]] = {}
        for row in self.rows_of("flights"):
            day = dt.date(row["year"], row["month"], row["day"])
            week = day - dt.timedelta(days=day.isoweekday() % 7)
            if str(week) in made:
                late.setdefault((str(week), row["carrier"]), []).append(row["dep_delay"])
        weeks = {key: (len(found), _mean(found)) for key, found in late.items()}
        carriers: dict[str, tuple[int, float]] = {}
        for (_, carrier), (count, delay) in weeks.items():
            flights, worst = carriers.get(carrier, (0, delay))
            carriers[carrier] = flights + count, max(worst, delay)
        return _rounded(weeks), _rounded(carriers)

    def again(self, count: int) -> list[list[str]]:
        """Wait until the sensor has had so many runs; of which asset each was."""

        def all_ended() -> list[Run]:
            found = [it for it in self.dagster.runs({}) if _RECOMPUTE in it.tags]
            return found if len(found) >= count and all(map(ended, found)) else []

        runs = until(f"{count} runs of the sensor", all_ended)
        assert {run.status for run in runs} == {"SUCCESS"}, runs
        return [run.assets for run in runs]

    def check(self, *days: int) -> str:
        """See that the table holds the rows of the CSV file, each once: of these days, and of those
        before.

        :raises AssertionError: it does not.
        """
        january = self.place.flights.contents([1])
        self.expected |= {path_of(day): january[path_of(day)] for day in days}
        rows = self.rows_of("flights") if self.table.exists() else []
        found: dict[str, RowDigest] = {}
        for row in rows:
            path = partition_of(row)
            found[path] = found.get(path, RowDigest()) + content([row])
        assert found == self.expected, f"{sorted(found)}, not {sorted(self.expected)}"
        return f"{len(rows):,} rows as in the CSV file{self._seen_by_engines() if rows else ''}"

    def _seen_by_engines(self) -> str:
        """Compare what each engine reads with what this package does."""
        columns = ["year", "month", "day", "carrier", "flight", "origin"]
        with tempfile.TemporaryDirectory() as folder, lake_readers() as process:
            shared = SharedTable(self.table, Path(folder, "flights"), process)
            ours = shared.ours(columns)
            for engine in ENGINES:
                assert shared.seen_by(engine, columns) == ours, engine
        return f", also for {', '.join(ENGINES)}"


def _mean(delays: Sequence[int | None]) -> float:
    known = [it for it in delays if it is not None]
    return sum(known) / len(known)


def _rounded(rows: Rows) -> Rows:
    """Sums of floating points differ by the order of their rows."""
    return {key: (flights, round(delay, 6)) for key, (flights, delay) in rows.items()}


def path_of(day: int) -> str:
    return f"year=2013/month=1/day={day}"


def key_of(day: int) -> str:
    return f"2013-01-{day:02}"


def components(world: World) -> str:
    """`dg` finds the component, checks its YAML, and lists what it makes"""
    place = world.place
    project = place.folder / "component"
    shutil.copytree(EXAMPLES / "dagster_component", project)
    code, said = place.dg(project, "list", "components", "--json")
    assert code == 0, said
    assert _COMPONENT in [it["key"] for it in _json(said)["items"]], said
    code, said = place.dg(project, "check", "yaml")
    assert code == 0, said
    assert "validated successfully" in said
    code, said = place.dg(project, "check", "defs")
    assert code == 0, said
    code, said = place.dg(project, "list", "defs", "--json")
    assert code == 0, said
    listed = _json(said)
    assert [it["asset_key"] for it in listed["assets"]] == ["flights"], listed
    assert [it["name"] for it in listed["schedules"]] == ["flights_schedule"], listed
    [yaml] = project.rglob("defs.yaml")
    yaml.write_text(yaml.read_text().replace("partition_expr:", "partition_exprs:"))
    code, said = place.dg(project, "check", "yaml")
    assert code != 0, said
    assert "'partition_exprs' was unexpected" in said, said
    return "and a misspelt attribute is refused, with its line"


def _json(said: str) -> Any:
    """The document in what a command said, after its warnings."""
    return json.JSONDecoder().raw_decode(said[said.index("{") :])[0]


def backfill(world: World) -> str:
    """a backfill of five days with a hole in the middle, which is left alone"""
    [hole] = world.dagster.backfill([key_of(4)])
    assert hole.status == "SUCCESS", hole
    world.check(4)
    around = [2, 3, 5, 6, 7]
    runs = world.dagster.backfill([key_of(day) for day in around])
    assert {run.status for run in runs} == {"SUCCESS"}, runs
    assert sorted(run.days for run in runs) == [(key_of(2), key_of(3)), (key_of(5), key_of(7))]
    assert world.versions([4, *around]) == [1] * 6
    return f"{len(runs)} runs, {', '.join(map(_shown, runs))}; {world.check(*around)}"


def _shown(run: Run) -> str:
    first, last = run.days
    return f"{first[-2:]} to {last[-2:]}"


def january(world: World) -> str:
    """all of January in one run and one commit, over what is there"""
    days = range(1, 32)
    [run] = world.dagster.backfill([key_of(day) for day in days])
    assert run.status == "SUCCESS", run
    jobs = {file.job for file in world.table.state().files}
    assert len(jobs) == 1, jobs
    return world.check(*days)


def killed(world: World) -> str:
    """a run whose worker is killed: the daemon notices, and runs it again"""
    dagster, source = world.dagster, world.place.source
    before = world.versions([9])
    source.unlink()
    os.mkfifo(source)  # Who opens it to read waits for somebody who writes.
    idle = dagster.descendants()
    first = dagster.launch(partition=key_of(9))
    pipe = until("the run to wait for its file", lambda: _writer(source))
    for process in dagster.descendants() - idle:
        process.kill()
    os.close(pipe)
    source.unlink()
    source.symlink_to(world.place.flights.path)
    again = until(
        "the run's retry",
        lambda: [it for it in dagster.runs({"dagster/parent_run_id": first}) if ended(it)],
    )
    assert [run.status for run in again] == ["SUCCESS"], again
    assert dagster.run(first).status == "FAILURE"
    assert world.versions([9]) == [before[0] + 1]
    return world.check(9)


def _writer(pipe: Path) -> int | None:
    """Open a pipe to write: possible when somebody has opened it to read."""
    with contextlib.suppress(OSError):
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    return None


def ended(run: Run) -> bool:
    return run.status in ("SUCCESS", "FAILURE", "CANCELED")


def final(world: World) -> str:
    """a run that no retry can mend, which the daemon does not retry"""
    dagster = world.dagster
    ends = {"asset_partition_range_start": key_of(9), "asset_partition_range_end": key_of(8)}
    run = dagster.launch(**ends)
    until("the run's end", lambda: ended(dagster.run(run)))
    told = until("whether it is retried", lambda: dagster.run(run).tags.get("dagster/will_retry"))
    assert (dagster.run(run).status, told) == ("FAILURE", "false")
    assert dagster.runs({"dagster/parent_run_id": run}) == []
    return world.check()


def lineage(world: World) -> str:
    """a corrected day is carried on by the sensor, layer by layer; a lost file is made again"""
    dagster, days = world.dagster, range(6, 20)
    dagster.backfill([key_of(day) for day in days])
    dagster.backfill([key_of(6), key_of(13)], "weekly_delays")
    succeeded(dagster, dagster.launch("summary"))
    before = world.derived()
    dagster.start_sensor("zero_rename_recompute")
    corrections = {"flights": {"corrections": str(_corrections(world.place))}}
    succeeded(dagster, dagster.launch(config=corrections, partition=key_of(9)))
    layers = [["weekly_delays"], ["carriers"]]
    assert world.again(2) == layers
    corrected = world.derived()
    assert corrected[0] != before[0]
    assert corrected[1] != before[1]
    assert corrected == world.rebuilt()
    succeeded(dagster, dagster.launch(config=corrections, partition=key_of(9)))
    table = world.named("carriers")
    [file] = table.state().files
    world.place.store.client().delete_object(Bucket=table.root.bucket, Key=file.key)
    assert world.again(3) == [*layers, ["carriers"]]
    assert world.derived() == corrected
    succeeded(dagster, dagster.launch(partition=key_of(9)))
    assert world.again(5) == [*layers, ["carriers"], *layers]
    assert world.derived() == before
    return f"5 runs for a correction, a lost file and taking it back; {world.check(*days)}"


def late(world: World) -> str:
    """a late run of a day that a newer run has loaded: under newest_run it is superseded"""
    dagster, day = world.dagster, 9
    # A run's word for a resource takes the place of all that the definitions say of it.
    said_of_tables = {"table_root": world.place.root, "on_conflict": "newest_run"}
    said_of_tables |= {"layout": "delta"}
    resource = {"zero_rename": {"config": said_of_tables}}
    source = world.place.folder / "late.csv"

    def launch(corrections: Path) -> str:
        given = {"flights": {"corrections": str(corrections)}}
        # The first try fails for good: the day is loaded late, by hand.
        tags = {"partition": key_of(day), "max_retries": "0"}
        return dagster.launch(config=given, resources=resource, **tags)

    older = launch(source)
    until("the older run's end", lambda: ended(dagster.run(older)))
    [said] = dagster.errors(older)
    assert source.name in said, said
    before = world.versions([day])
    succeeded(dagster, launch(_corrections(world.place)))
    newer = world.day(day)
    assert world.versions([day]) == [before[0] + 1]
    shutil.copy(world.place.flights.path, source)
    again = dagster.execute_again(older)
    until("the late run's end", lambda: ended(dagster.run(again)))
    assert dagster.run(again).status == "FAILURE"
    [said] = dagster.errors(again)
    assert "SupersededRunError" in said, said
    assert world.day(day) == newer, "the newer run's rows are not there any more"
    assert world.versions([day]) == [before[0] + 1]
    succeeded(dagster, dagster.launch(partition=key_of(day)))
    assert world.day(day) != newer
    return f"the newer run's rows stay; {world.check(day)}"


def succeeded(dagster: Deployment, run: str) -> None:
    until("the run's end", lambda: ended(dagster.run(run)))
    assert dagster.run(run).status == "SUCCESS", dagster.errors(run) or run


def _corrections(place: Place) -> Path:
    """A file of one day's flights, all an hour later."""
    with place.flights.path.open(newline="") as source:
        lines = csv.DictReader(source)
        day = [it for it in lines if (it["month"], it["day"]) == ("1", "9")]
    path = place.folder / "corrections.csv"
    with path.open("w", newline="") as target:
        writer = csv.DictWriter(target, list(day[0]))
        writer.writeheader()
        for it in day:
            late = it["dep_delay"]
            writer.writerow({**it, "dep_delay": late if late == "NA" else str(int(late) + 60)})
    return path


SCENES = (components, backfill, january, killed, final, late, lineage)
