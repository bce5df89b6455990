"""Packages of providers that the checkout's environment does not have, for tests of them."""

from __future__ import annotations

from pkgutil import extend_path

import airflow
import pytest

from support.older_python import older_python
from tools.environments import OPTIONAL_PROVIDERS

#: What imports them.
OF_THEM = (
    *("zero_rename.operators.spark_kubernetes", "zero_rename.operators.databricks"),
    *("zero_rename.provider.assets.lineage", "zero_rename.provider.cancelling_application"),
)


@pytest.fixture
def optional_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put them on the path. The test is skipped where there are none, and fails in continuous
    integration."""
    older_python(OPTIONAL_PROVIDERS)
    monkeypatch.syspath_prepend(str(OPTIONAL_PROVIDERS.site))
    path = extend_path(list(airflow.__path__), "airflow")
    monkeypatch.setattr(airflow, "__path__", path)
