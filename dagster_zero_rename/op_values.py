"""Values that ops pass to each other: they are not assets, so Dagster keeps them."""

from __future__ import annotations

import dagster as dg
from dagster._core.definitions.job_definition import default_job_io_manager

from zero_rename.committer.errors import InvalidInputError


def is_asset_input(context: dg.InputContext) -> bool:
    """Return whether an input is an asset. Else it is what an earlier op returned.

    :raises InvalidInputError: it is neither, so no table is known for it.
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
    """Make the I/O manager of definitions that do not name one. It pickles values into the
    instance's storage, unless ``DAGSTER_DEFAULT_IO_MANAGER_MODULE`` names another one."""
    default = {"io_manager": default_job_io_manager}
    with dg.build_resources(default, instance=instance) as resources:
        return resources.io_manager
