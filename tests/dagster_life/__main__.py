"""``python -m dagster_life``: the examples in a whole Dagster, with daemon, webserver and ``dg``;
the rows are compared after each scene."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable

from .deployment import deployment, version
from .place import place
from .scenes import SCENES, World


def main() -> int:
    """Returns 0 only if the rows were right after every scene."""
    names = [scene.__name__ for scene in SCENES]
    parser = argparse.ArgumentParser(prog="dagster_life", description=__doc__)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"of: {', '.join(names)}")
    options = parser.parse_args()
    unknown = set(options.scenes) - set(names)
    if unknown:
        parser.error(f"no such scene: {', '.join(sorted(unknown))}")
    chosen = [it for it in SCENES if not options.scenes or it.__name__ in options.scenes]
    with place() as made, deployment(made) as dagster:
        print(f"Dagster {version(made)}, its daemon, webserver and dg; {made.store.ran_on}")
        world = World(made, dagster)
        good = [_shown(scene, world) for scene in chosen]
    print(f"{sum(good)} of {len(good)} scenes are right", flush=True)
    return 0 if all(good) else 1


def _shown(scene: Callable[[World], str], world: World) -> bool:
    """Play a scene, and say what came of it in one line."""
    begun = time.monotonic()
    try:
        came, good = scene(world), True
    except Exception as error:
        traceback.print_exc()
        came, good = f"{type(error).__name__}: {error}", False
    seconds = time.monotonic() - begun
    what = (scene.__doc__ or "").strip()
    print(f"{'right' if good else 'WRONG':5} {seconds:4.0f} s  {what}: {came}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
