"""``python -m walk SEED``: walk a seed again. ``python -m walk FIRST LAST``: many, without LAST."""

from __future__ import annotations

import logging
import sys

from walk.walking import WalkFailure, walk_seeds


def main(first: int, last: int | None = None) -> int:
    logging.disable(logging.CRITICAL)
    try:
        walks = walk_seeds(range(first, first + 1 if last is None else last))
    except WalkFailure as failure:
        print(failure)
        return 1
    print(f"{walks.walks} walks, {walks.commits} commits, {walks.requests} requests")
    print("\n".join(walks.table))
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
