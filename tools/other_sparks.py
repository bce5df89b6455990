"""Environments with the Sparks between the oldest and the newest, in the user's cache folder.

``python tools/other_sparks.py`` makes them, once for each Python and each set of versions: some
700 MB each. The tests start their Pythons (``tests/spark/saving/test_other_sparks.py``).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# As a script it finds its neighbours by the checkout's folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.bootstrap import SetupError
from tools.older_spark import make
from tools.pinned_environment import PinnedEnvironment

OTHER_SPARKS = tuple(
    PinnedEnvironment("spark", "pyspark", Path(__file__).with_name(f"spark_{version}.lock"))
    for version in ("4_0", "4_1")
)


def main() -> int:
    for environment in OTHER_SPARKS:
        try:
            if not environment.python.exists():
                make(environment)
        except (SetupError, subprocess.SubprocessError, OSError) as error:
            print(f"Spark {environment.version}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
