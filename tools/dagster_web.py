"""Environment with Dagster's page, daemon and ``dg``, in the user's cache folder.

They pin protobuf and graphql-core to older versions than Airflow has. ``python
tools/dagster_web.py`` makes it, once for each Python and each set of versions: some 140 MB.
``make dagster-life`` and ``make screenshots`` start what is in it. ``--python`` prints which its
Python is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

# As a script it finds its neighbours by the checkout's folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.pinned_environment import PinnedEnvironment, command

DAGSTER_WEB = PinnedEnvironment(
    "dagster-web", "dagster-webserver", Path(__file__).with_suffix(".lock")
)


def make() -> None:
    """Make the environment.

    :raises SetupError: a package cannot be had, or not be installed.
    """
    DAGSTER_WEB.make(lambda folder: None)


def main(arguments: Sequence[str] | None = None) -> int:
    return command(DAGSTER_WEB, make, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
