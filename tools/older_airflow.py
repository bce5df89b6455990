"""Environment with the oldest Airflow that the provider runs on, in the user's cache folder.

``python tools/older_airflow.py`` makes it, once for each Python and each set of versions, with a
migrated database to copy: some 600 MB. The tests start its Python
(``tests/operators/test_older_airflow.py``). ``--python`` prints which that is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

# As a script it finds its neighbours by the checkout's folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.bootstrap import run
from tools.pinned_environment import PinnedEnvironment, command

OLDER_AIRFLOW = PinnedEnvironment("airflow", "apache-airflow", Path(__file__).with_suffix(".lock"))


def migrated_database() -> Path:
    """An SQLite database as that Airflow makes it: made once, since it takes ten seconds."""
    return OLDER_AIRFLOW.python.parents[1] / "home" / "airflow.db"


def make() -> None:
    """Make the environment.

    :raises SetupError: a package cannot be had, or not be installed.
    """
    OLDER_AIRFLOW.make(_migrate)


def _migrate(folder: Path) -> None:
    ours = {n: v for n, v in os.environ.items() if not n.startswith(("AIRFLOW", "PYTHON"))}
    ours |= {"AIRFLOW_HOME": str(folder / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    run([str(folder / "bin" / "python"), "-m", "airflow", "db", "migrate"], env=ours)


def main(arguments: Sequence[str] | None = None) -> int:
    return command(OLDER_AIRFLOW, make, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
