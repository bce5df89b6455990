"""Packages of providers that the checkout's environment does not have, for tests of them."""

from __future__ import annotations

from pkgutil import extend_path

import airflow
import pytest

from tools.environments import OPTIONAL_PROVIDERS
from tools.s3_servers import in_ci

#: What imports them.
OF_THEM = (
    *("zero_rename.operators.spark_kubernetes", "zero_rename.operators.databricks"),
    "zero_rename.provider.assets.lineage",
)


@pytest.fixture
def optional_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put them on the path. The test is skipped where there are none, and fails in continuous
    integration."""
    if not OPTIONAL_PROVIDERS.python.exists():
        why = "there are no optional providers: run make optional-providers"
        if in_ci():
            pytest.fail(why)
        pytest.skip(why)
    monkeypatch.syspath_prepend(str(OPTIONAL_PROVIDERS.site))
    path = extend_path(list(airflow.__path__), "airflow")
    monkeypatch.setattr(airflow, "__path__", path)
