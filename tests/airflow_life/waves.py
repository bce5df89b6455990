"""What happens to what is made of flights where days are corrected: weeks of days, a month of
weeks, a ranking of months; and days by one run. All is held against a rebuild from the flights."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from typing import Any

import pyarrow as pa

from airflow_life.rows import path_of, seen_by_engines
from airflow_life.scenes import World
from support.waiting import until
from zero_rename.committer import FileOptions
from zero_rename.committer.commit.narrowed_run import pending_narrowings
from zero_rename.committer.format.job_spec import Content
from zero_rename.committer.format.layout import UNPARTITIONED
from zero_rename.lineage import LineageState, look_up
from zero_rename.tables import DeltaTable

BY_DAY, WEEKLY, MONTHLY, RANKING = (
    *("flights_by_day", "flights_weekly"),
    *("flights_monthly", "flights_ranking"),
)
DAYS = [f"2013-01-{day:02}" for day in range(1, 32)]
WEEKS = ["2013-01-07", "2013-01-14", "2013-01-21"]
#: Day of a flight, carrier, minutes of delay.
Row = tuple[str, str, int]
Rows = Counter[tuple[Any, ...]]


def made(world: World) -> str:
    """a month of days by one run, weeks, their month and a ranking, made by DAGs of their own"""
    airflow = world.airflow
    whole = {"first": DAYS[0], "last": DAYS[-1]}
    conf = {"csv": str(world.january.path)} | whole
    world.succeeded(airflow.trigger("flights_backfill", conf=conf), "flights_backfill")
    by_day = airflow.trigger(BY_DAY, conf=whole)
    airflow.backfill(WEEKLY, WEEKS[0], WEEKS[-1])
    for week in WEEKS:
        world.succeeded(airflow.run_of(WEEKLY, week)["dag_run_id"], WEEKLY)
    assert len(world.succeeded(by_day, BY_DAY)["partitions"]) == len(DAYS)
    airflow.backfill(MONTHLY, DAYS[0])
    world.succeeded(airflow.run_of(MONTHLY, DAYS[0])["dag_run_id"], MONTHLY)
    until("a ranking of the month", lambda: airflow.runs(RANKING))
    airflow.settled(RANKING)
    assert _wrong(world) == {}
    return _checked(world, BY_DAY, WEEKLY, MONTHLY, RANKING)


def corrected(world: World) -> str:
    """a day loaded again from a mended file: week and month run again, the ranking by its asset"""
    day = "2013-01-09"
    mended = world.january.without(7, world.january.path.with_name("mended_january.csv"))
    run = world.backfill(day, mended)
    world.succeeded(run)
    stale, behind = LineageState.STALE, LineageState.BEHIND
    assert _wrong(world) == {
        **{(BY_DAY, f"day={it}"): stale for it in DAYS},
        (WEEKLY, "week=2013-01-07"): stale,
        (MONTHLY, "month=2013-01"): behind,
        (RANKING, UNPARTITIONED): behind,
    }
    return _carried_on(world, "2013-01-07")


def came_out_equal(world: World) -> str:
    """a correction that changes no delay: the week comes out equal, and the wave ends there"""
    _correct(world, "2013-01-16", "tailnum", lambda old: f"{old}X")
    before = _jobs(world.delta(MONTHLY)), _jobs(world.delta(RANKING)), _count_of_runs(world)
    assert _recompute(world, RANKING) == [[(WEEKLY, "week=2013-01-14")]]
    assert (
        _jobs(world.delta(MONTHLY)),
        _jobs(world.delta(RANKING)),
        _count_of_runs(world),
    ) == before
    return _checked(world, WEEKLY, MONTHLY, RANKING)


def narrowed(world: World) -> str:
    """one stale day of a run that has made 31, before it is read: no other day is touched"""
    return _one_day_alone(world, "2013-01-09")


def rewritten(world: World) -> str:
    """every table compacted, checkpointed and purged: nothing is stale; a wave as before"""
    stale = _wrong(world)
    for name in ("flights", BY_DAY, WEEKLY, MONTHLY, RANKING):
        table = world.delta(name)
        table.compact(apply=True)
        table.checkpoint_log()
        table.purge(apply=True)
    assert _wrong(world) == stale
    _correct(world, "2013-01-23", "dep_delay", lambda old: (old or 0) + 60)
    return f"{_carried_on(world, '2013-01-21')}; {_one_day_alone(world, '2013-01-23')}"


def healed(world: World) -> str:
    """files of a week and of a day deleted behind the tables' backs: found lost, and made again"""
    places = {WEEKLY: "week=2013-01-14", BY_DAY: "day=2013-01-20"}
    for name, partition in places.items():
        table = world.delta(name)
        for file in table.snapshot().by_partition()[partition]:
            world.store.client().delete_object(Bucket=table.root.bucket, Key=file.key)
    lost = {it: state for it, state in _wrong(world).items() if state is LineageState.LOST}
    assert set(lost) == set(places.items())
    before = _jobs(world.delta(MONTHLY)), _count_of_runs(world)
    [layer] = _recompute(world, WEEKLY, BY_DAY)
    assert {(name, it) for name, *of in layer for it in of} >= set(places.items())
    assert (_jobs(world.delta(MONTHLY)), _count_of_runs(world)) == before
    return _checked(world, BY_DAY, WEEKLY, MONTHLY, RANKING)


def in_the_end(world: World) -> str:
    """all tables of the waves verified: nothing stale, lost or left behind"""
    assert _wrong(world) == {}
    assert _recompute(world, BY_DAY, RANKING) == []
    for name in ("flights", BY_DAY, WEEKLY, MONTHLY, RANKING):
        table = world.delta(name)
        assert table.verify() == [], name
        left = table.run(pending_narrowings(table.root))
        assert all(it.said.over for it in left), left
    read = {it: seen_by_engines(world.delta(it), columns) for it, columns in _COLUMNS.items()}
    told = "; ".join(f"{name}: {it}" for name, it in read.items())
    return f"{_checked(world, *read)}; {told}"


SCENES = (made, corrected, came_out_equal, narrowed, rewritten, healed, in_the_end)


def _carried_on(world: World, week: str) -> str:
    """A correction in a week is carried on by a layer of weeks and one of months, which are
    cleared, and the ranking, which the month's asset starts: each once."""
    before, weeks = _count_of_runs(world), _jobs(world.delta(WEEKLY))
    months = _jobs(world.delta(MONTHLY))
    partition = f"week={week}"
    layers = _recompute(world, RANKING)
    assert layers == [[(WEEKLY, partition)], [(MONTHLY, "month=2013-01")]], layers
    world.airflow.settled(RANKING)
    assert _count_of_runs(world) == before + Counter({RANKING: 1})
    assert _changed(weeks, _jobs(world.delta(WEEKLY))) == {partition}
    assert _changed(months, _jobs(world.delta(MONTHLY))) == months.keys()
    return f"2 layers, and one run by an asset; {_checked(world, WEEKLY, MONTHLY, RANKING)}"


def _one_day_alone(world: World, day: str) -> str:
    """A report of a day has that day made again first: by the run that made all, and alone."""
    table, airflow, partition = world.delta(BY_DAY), world.airflow, f"day={day}"
    held = _jobs(table)
    run = airflow.trigger("flights_day_report", conf={"day": day})
    airflow.succeeded("flights_day_report", run)
    assert _changed(held, _jobs(table)) == {partition}
    rows = _rebuilt(world)[BY_DAY]
    told = airflow.report("flights_day_report", run, "carriers")
    assert told == {carrier: delay for it, carrier, _, delay in rows if it == day}
    found = _found(world, BY_DAY)
    assert {row for row in found if row[0] == day} == {row for row in rows if row[0] == day}
    return f"one of {len(held)} days made again"


def _recompute(world: World, *targets: str) -> list[list[tuple[str, str]]]:
    return world.airflow.made_again("flights_recompute", conf={"targets": list(targets)})


def _correct(world: World, day: str, column: str, change: Callable[[Any], Any]) -> None:
    """Replace a day's flights: what a program outside Airflow does."""
    table = world.delta("flights")
    rows = table.scan([path_of(day)]).to_arrow()
    at = rows.schema.get_field_index(column)
    field = rows.schema.field(at)
    values = [change(old) for old in rows[column].to_pylist()]
    rows = rows.set_column(at, field, pa.array(values, field.type))
    with table.job(
        rows.schema, mode="replace", inputs=(), files=FileOptions(content=Content.ROWS)
    ) as job:
        job.write(rows)


def _wrong(world: World) -> dict[tuple[str, str], LineageState]:
    """What is not as its inputs are, by table and partition."""
    names = (BY_DAY, WEEKLY, MONTHLY, RANKING)
    roots = {world.delta(name).root.url: name for name in names}
    found = look_up(roots, lost=True).partitions()
    return {
        (roots[it.table], it.partition): it.state
        for it in found
        if it.state is not LineageState.FRESH
    }


def _count_of_runs(world: World) -> Counter[str]:
    return Counter({it: len(world.airflow.runs(it)) for it in (BY_DAY, WEEKLY, MONTHLY, RANKING)})


def _changed(before: Mapping[str, set[str]], after: Mapping[str, set[str]]) -> set[str]:
    """The partitions whose files come from other jobs than before."""
    assert before.keys() == after.keys()
    return {it for it in before if before[it] != after[it]}


def _jobs(table: DeltaTable) -> dict[str, set[str]]:
    by = table.snapshot().by_partition()
    return {name: {file.job for file in files} for name, files in by.items()}


def _checked(world: World, *names: str) -> str:
    """:raises AssertionError: a table is not what a rebuild from the flights makes."""
    expected = _rebuilt(world)
    for name in names:
        found = _found(world, name)
        assert found == expected[name], (
            f"{name}: missing {list(expected[name] - found)[:5]}, "
            f"too many {list(found - expected[name])[:5]}"
        )
    return f"{sum(expected[it].total() for it in names)} rows as by a rebuild"


_COLUMNS = {
    BY_DAY: ("day", "carrier", "flights", "delay"),
    WEEKLY: ("week", "month", "carrier", "flights", "delay"),
    MONTHLY: ("month", "carrier", "flights", "delay"),
    RANKING: ("carrier", "flights", "delay", "rank"),
}


def _found(world: World, name: str) -> Rows:
    rows = world.delta(name).scan().to_arrow().to_pylist()
    return Counter(tuple(row[it] for it in _COLUMNS[name]) for row in rows)


def _rebuilt(world: World) -> dict[str, Rows]:
    """All that is made of the flights that are there now, in plain Python."""
    columns = ["year", "month", "day", "carrier", "dep_delay"]
    flights = [
        (date(it["year"], it["month"], it["day"]), it["carrier"], it["dep_delay"] or 0)
        for it in world.delta("flights").scan(columns=columns).to_arrow().to_pylist()
    ]
    january = [(str(day), carrier, late) for day, carrier, late in flights if str(day) in DAYS]
    weeks = [
        (str(week), f"{day:%Y-%m}", carrier, late)
        for day, carrier, late in flights
        if str(week := day - timedelta(days=day.weekday())) in WEEKS
    ]
    ranked = sorted(_sums(it[2:] for it in weeks), key=lambda it: (it[2] / it[1], it[0]))
    return {
        BY_DAY: Counter(_sums(january)),
        WEEKLY: Counter(_sums(weeks)),
        MONTHLY: Counter(_sums(it[1:] for it in weeks)),
        RANKING: Counter((*it, rank) for rank, it in enumerate(ranked, 1)),
    }


def _sums(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Number and sum of the last column, by the others."""
    found: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for *key, late in rows:
        found[tuple(key)].append(late)
    return [(*key, len(late), sum(late)) for key, late in found.items()]
