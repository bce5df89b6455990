"""Environment with the oldest Spark that ``save()`` runs on, in the user's cache folder.

``python tools/older_spark.py`` makes it, once for each Python and each set of versions: some
700 MB. The tests start its Python (``tests/spark/saving/test_older_spark.py``). ``--python``
prints which that is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

# As a script it finds its neighbours by the checkout's folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.bootstrap import run
from tools.pinned_environment import PinnedEnvironment, command

OLDER_SPARK = PinnedEnvironment("spark", "pyspark", Path(__file__).with_suffix(".lock"))


def make(environment: PinnedEnvironment) -> None:
    """Make an environment with a Spark.

    :raises SetupError: a package cannot be had, or not be installed.
    """
    environment.make(_compile)


def _compile(folder: Path) -> None:
    run([str(folder / "bin" / "python"), str(Path(__file__).with_name("compile_pyspark.py"))])


def main(arguments: Sequence[str] | None = None) -> int:
    return command(OLDER_SPARK, partial(make, OLDER_SPARK), __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
