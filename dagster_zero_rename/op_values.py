"""Values that ops hand to each other: no assets, so no tables; kept as Dagster keeps them."""

from __future__ import annotations

import dagster as dg
from dagster._core.definitions.job_definition import default_job_io_manager

from zero_rename.committer.errors import InvalidInputError


def is_asset_input(context: dg.InputContext) -> bool:
    """Tell whether an input is an asset, and not what an op before has returned.

    :raises InvalidInputError: it is neither: nothing says which table it would be.
    """
    if context.has_asset_key:
        return True
    if context.upstream_output is None:
        raise InvalidInputError(
            f"The input {context.name!r} of {context.op_def.name!r} is no asset and comes from no "
            "op, so no table is meant by it; nothing was read.",
            remedy="Connect it to an asset or an op, or read a table in the function by a "
            "ZeroRenameResource.",
        )
    return False


def default_io_manager(instance: dg.DagsterInstance) -> dg.IOManager:
    """Make the I/O manager that definitions without one have: it pickles values into the
    instance's storage, if ``DAGSTER_DEFAULT_IO_MANAGER_MODULE`` names no other.
    """
    default = {"io_manager": default_job_io_manager}
    with dg.build_resources(default, instance=instance) as resources:
        return resources.io_manager
