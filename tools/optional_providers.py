"""Packages of the extras kubernetes, databricks and openlineage, in the user's cache folder.

``python tools/optional_providers.py`` installs them, some 93 MB, into a folder that the tests of
them put on their path beside the environment of the checkout. They are not in that one: the
apache-spark and amazon providers import what is there of them, more than a second in each process
that loads a DAG.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

# As a script it finds its neighbours by the checkout's folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.pinned_environment import PinnedEnvironment, command

OPTIONAL_PROVIDERS = PinnedEnvironment(
    "providers",
    "apache-airflow-providers-cncf-kubernetes",
    Path(__file__).with_suffix(".lock"),
)


def make() -> None:
    """Install them.

    :raises SetupError: a package cannot be had, or not be installed.
    """
    OPTIONAL_PROVIDERS.make(lambda folder: None)


def main(arguments: Sequence[str] | None = None) -> int:
    return command(OPTIONAL_PROVIDERS, make, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
