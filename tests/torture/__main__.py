"""``python -m torture``: kill writers, many times, and print what came of it."""

from __future__ import annotations

import argparse
import sys
import time

from torture.harness import Torture
from torture.proxy import Proxy
from torture.servers import best, serving


def main() -> int:
    """Returns 0 only if no row is lost or doubled and nothing is left over."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--server", default=None, help="moto, versitygw, minio or an URL")
    parser.add_argument("--latency", type=float, default=0.02, help="seconds a request")
    parser.add_argument("--no-spark", action="store_true", help="plain jobs only")
    options = parser.parse_args()
    name = options.server or best()
    spark = (lambda number: False) if options.no_spark else None
    started = time.monotonic()
    print(f"{options.kills} kills on {name}, seed {options.seed}", flush=True)
    with serving(name) as store, Proxy(store.endpoint, options.latency) as proxy:
        bucket = f"torture-{options.seed}"
        store.client().create_bucket(Bucket=bucket)
        say = lambda line: print(line, flush=True)  # noqa: E731
        torture = Torture(store, proxy, bucket, options.seed, say, large=True)
        summary = torture.run(options.kills, spark)
    print(f"\n{name}, seed {options.seed}, {time.monotonic() - started:.0f} s\n{summary}")
    return 0 if summary.good else 1


if __name__ == "__main__":
    sys.exit(main())
