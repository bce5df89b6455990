"""What the project's components load by."""

import dagster as dg

from dagster_zero_rename import SparkPipesClient, ZeroRenameResource


@dg.definitions
def resources() -> dg.Definitions:
    """The client's key is the one that a component asks for unless it says another."""
    tables = ZeroRenameResource(table_root=dg.EnvVar("LAKE_ROOT"))
    return dg.Definitions(resources={"spark": SparkPipesClient(zero_rename=tables)})
