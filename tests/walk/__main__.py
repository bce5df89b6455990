"""``python -m walk SEED``: walk a seed again. ``python -m walk FIRST LAST``: many, without LAST.
``--layout delta``: through a Delta table; ``--layout hadoop``: by Hadoop's committers."""

from __future__ import annotations

import argparse
import logging
import sys

from walk.plan import DELTA, DIRECTORIES, HADOOP
from walk.walking import walk_seeds
from walk.walks import WalkFailure


def main() -> int:
    parser = argparse.ArgumentParser(prog="walk", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, nargs="?")
    parser.add_argument("--layout", choices=(DIRECTORIES, DELTA, HADOOP), default=DIRECTORIES)
    options = parser.parse_args()
    first = options.first
    last = first + 1 if options.last is None else options.last
    logging.disable(logging.CRITICAL)
    try:
        walks = walk_seeds(range(first, last), layout=options.layout)
    except WalkFailure as failure:
        print(failure)
        return 1
    print(f"{walks.walks} walks, {walks.commits} commits, {walks.requests} requests")
    print("\n".join(walks.table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
