"""The Python of an environment with other versions, for tests that run there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.environments import PinnedEnvironment
from tools.s3_servers import in_ci


def older_python(environment: PinnedEnvironment) -> Path:
    """Its Python. The test is skipped where there is none, and fails in continuous integration."""
    if not environment.python.exists():
        missing = f"{environment.title.capitalize()} {environment.version}"
        why = f"there is no {missing}: run make {environment.lock.stem}"
        if in_ci():
            pytest.fail(why)
        pytest.skip(why)
    return environment.python
