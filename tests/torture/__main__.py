"""``python -m torture``: kill writers, many times, and print what came of it."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from torture import delta_requests, scenes, storms
from torture.crowds import crowds, read_by_delta_rs
from torture.delta_requests import DeltaAttack
from torture.each_request import VERBS, Attack, kill_at_each
from torture.harness import Torture
from torture.killed_races import kill_racers
from torture.proxy import Proxy
from torture.servers import Store, serving, where_writers_race

from support.lake_readers import lake_readers
from tools.environments import LAKE_READERS
from tools.s3_servers import ATOMIC
from tools.server_process import ServerError

#: Processes of a crowd.
CROWDS = (8, 32)


def main() -> int:
    """Returns 0 only if no row is lost or doubled and nothing is left over; 2 without a server."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    servers = f"moto, {', '.join(ATOMIC)}, or an URL with credentials in the environment"
    parser.add_argument("--server", default=where_writers_race(), help=servers)
    parser.add_argument("--latency", type=float, default=0.02, help="seconds a request")
    parser.add_argument(
        "--races", type=int, help="kills of one of two racing writers; default: a fifth of --kills"
    )
    parser.add_argument("--no-spark", action="store_true", help="plain jobs only")
    parser.add_argument(
        "--scenes", default="long_shuffle,speculation", help="which to play after the kills"
    )
    parser.add_argument(
        "--faults",
        default="",
        metavar="NAMES",
        help="no kills, but jobs in these weathers: per cent of requests that are throttled, "
        f"{', '.join(storms.NAMED)}, or all",
    )
    parser.add_argument(
        "--each",
        default="",
        metavar="VERBS",
        help="kills at each request instead, of a process that does one of "
        f"{'; '.join(VERBS)}: separated by semicolons, or all",
    )
    parser.add_argument(
        "--each-delta",
        default="",
        metavar="VERBS",
        help="the same of a Delta table: "
        f"{'; '.join(delta_requests.VERBS)}: separated by semicolons, or all",
    )
    parser.add_argument(
        "--crowds",
        default="",
        metavar="SIZES",
        help="instead, so many processes at once that change one Delta table, once whole and once "
        "with one of them killed: numbers separated by commas, or all",
    )
    options = parser.parse_args()
    try:
        if options.faults:
            return 0 if survived(options) else 1
        if options.each:
            return 0 if killed_at_each(options, options.each, Attack) else 1
        if options.each_delta:
            return 0 if killed_at_each(options, options.each_delta, DeltaAttack) else 1
        if options.crowds:
            return 0 if crowded(options) else 1
        return 0 if torture(options) else 1
    except ServerError as error:
        print(f"torture: {error}", file=sys.stderr)
        return 2


def torture(options: argparse.Namespace) -> bool:
    """Whether all went well."""
    name = options.server
    spark = (lambda number: False) if options.no_spark else None
    started = time.monotonic()
    print(f"{options.kills} kills on {name}, seed {options.seed}", flush=True)
    with serving(name) as store, Proxy(store.endpoint, options.latency) as proxy:
        bucket = f"torture-{options.seed}"
        store.client().create_bucket(Bucket=bucket)
        say = lambda line: print(line, flush=True)  # noqa: E731
        kills = Torture(store, proxy, bucket, options.seed, say, large=True)
        summary = kills.run(options.kills, spark)
        took = time.monotonic() - started
        print(f"\n{store.ran_on}, seed {options.seed}, {took:.0f} s\n{summary}", flush=True)
        good = summary.good
        if store.atomic:
            races = options.kills // 5 if options.races is None else options.races
            raced = kill_racers(store, bucket, options.seed, races, options.latency, say)
            print(f"\n{raced}", flush=True)
            good &= raced.good
        for scene in filter(None, options.scenes.split(",")):
            with tempfile.TemporaryDirectory(prefix="zero-rename-torture-") as folder:
                good &= play(scene, store, bucket, Path(folder))
    return good


def survived(options: argparse.Namespace) -> bool:
    """Whether jobs finish under all the faults that were asked for."""
    with serving(options.server) as store:
        bucket = f"faults-{options.seed}"
        store.client().create_bucket(Bucket=bucket)
        print(f"{store.ran_on}, seed {options.seed}", flush=True)
        good = True
        names = storms.ALL if options.faults == "all" else options.faults.split(",")
        for name in names:
            faults, skew = storms.by_name(name, options.seed)
            told = storms.storm(name, store, bucket, faults, skew=skew)
            print(told, flush=True)
            good &= told.good
    return good


def killed_at_each(options: argparse.Namespace, asked: str, attacks: type[Attack]) -> bool:
    """Whether nothing is lost, doubled or left by any kill at any request of what was asked for."""
    names = list(attacks.verbs) if asked == "all" else asked.split(";")
    good = True
    with serving(options.server) as store, Proxy(store.endpoint) as proxy:
        bucket = f"each-{options.seed}"
        store.client().create_bucket(Bucket=bucket)
        print(f"{store.ran_on}", flush=True)
        for name in names:
            kills = kill_at_each(store, proxy, bucket, name, attacks)
            print(kills, flush=True)
            good &= not kills.problems
    return good


def crowded(options: argparse.Namespace) -> bool:
    """Whether crowds of processes lose and double no row of a Delta table."""
    sizes = CROWDS if options.crowds == "all" else map(int, options.crowds.split(","))
    with ExitStack() as stack:
        store = stack.enter_context(serving(options.server))
        if not store.atomic:
            raise ServerError(f"On {store.name} one writer at a time changes a Delta table.")
        bucket = f"crowds-{options.seed}"
        store.client().create_bucket(Bucket=bucket)
        read = None
        if LAKE_READERS.python.exists():
            read = read_by_delta_rs(stack.enter_context(lake_readers()), store)
        also = "delta-rs reads the same" if read else "delta-rs is not there: make lake-readers"
        print(f"{store.ran_on}, seed {options.seed}; {also}", flush=True)
        good = True
        for size in sizes:
            for found in crowds(store, bucket, options.seed, size, read):
                print(found, flush=True)
                good &= found.good
    return good


def play(scene: str, store: Store, bucket: str, folder: Path) -> bool:
    """Play one scene of :mod:`torture.scenes` and say how it went."""
    try:
        print(getattr(scenes, scene)(store, bucket, folder), flush=True)
    except AssertionError as error:
        print(f"{scene}: {error}", flush=True)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
