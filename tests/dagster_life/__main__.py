"""``python -m dagster_life``: the examples in a whole Dagster, with daemon, webserver and ``dg``,
into Delta tables; the rows are compared after each scene, also as delta-rs, Polars and DuckDB read
them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from support.scenes import play

from .deployment import deployment, version
from .place import place
from .scenes import SCENES, World


@contextmanager
def world() -> Iterator[World]:
    with place("delta") as made, deployment(made) as dagster:
        print(f"Dagster {version(made)}, its daemon, webserver and dg; {made.store.ran_on}")
        yield World(made, dagster)


if __name__ == "__main__":
    sys.exit(play("dagster_life", __doc__, SCENES, world))
