"""How often a process of the tests looks for cycles of objects that nobody holds."""

import gc


def collect_rarely() -> None:
    """A third of a test run's CPU went into looking through what Airflow and Dagster keep."""
    gc.set_threshold(50_000, 20, 100)
