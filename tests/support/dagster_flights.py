"""The example project of Dagster, and its job of January's days.

Runs are executed again by name: Dagster imports the job from this module, in a process of its own
where a test kills it.
"""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg

from support.dagster_loads import execute

EXAMPLE = Path(__file__).parents[2] / "examples" / "dagster_flights" / "definitions.py"


def example() -> ModuleType:
    """The project's module, loaded anew."""
    spec = importlib.util.spec_from_file_location("dagster_flights_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def january() -> dg.JobDefinition:
    return example().defs.resolve_job_def("january")


def run_january(
    instance: dg.DagsterInstance,
    tags: dict[str, str],
    parent: str | None = None,
    from_failure: bool = False,
) -> Any:
    """Run the job.

    :param parent: the run that is executed again: as a whole, or what failed of it.
    """
    again = None if parent is None else dg.ReexecutionOptions(parent_run_id=parent)
    if parent is not None and from_failure:
        again = dg.ReexecutionOptions.from_failure(parent, instance)
    return execute(january, instance, tags, again, {"execution": {"config": {"in_process": {}}}})
