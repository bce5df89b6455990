"""Environment with Dagster's I/O managers for Delta and Iceberg, in the user's cache folder.

``python tools/dagster_peers.py`` makes it, once for each Python and each set of versions: some 600
MB. ``make dagster-peers`` runs them there. ``--python`` prints which its Python is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

# As a script it finds its neighbours by the checkout's folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.pinned_environment import PinnedEnvironment, command

DAGSTER_PEERS = PinnedEnvironment(
    "dagster-peers", "dagster-iceberg", Path(__file__).with_suffix(".lock")
)


def make() -> None:
    """Make the environment.

    :raises SetupError: a package cannot be had, or not be installed.
    """
    DAGSTER_PEERS.make(lambda folder: None)


def main(arguments: Sequence[str] | None = None) -> int:
    return command(DAGSTER_PEERS, make, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
