"""The part of Dagster's daemon in tests: ticks of sensors, and the runs that they ask for."""

from __future__ import annotations

from typing import Any

import dagster as dg


def evaluated(
    defs: dg.Definitions, sensor: str, instance: dg.DagsterInstance, **resources: Any
) -> Any:
    """Return the outcome of a tick of a sensor, given by its name."""
    with dg.build_sensor_context(
        instance, repository_def=defs.get_repository_def(), resources=resources
    ) as context:
        return defs.resolve_sensor_def(sensor).evaluate_tick(context)


def executed(
    defs: dg.Definitions, request: dg.RunRequest, instance: dg.DagsterInstance, **more: Any
) -> dg.ExecuteInProcessResult:
    """Execute the run that a request asks for; its failure is in the result.

    :param more: further arguments of ``execute_in_process``.
    """
    return defs.resolve_implicit_global_asset_job_def().execute_in_process(
        asset_selection=list(request.asset_selection or ()),
        partition_key=request.partition_key,
        run_config=request.run_config,
        tags=request.tags,
        instance=instance,
        raise_on_error=False,
        **more,
    )
