"""All that lies below ``defs``."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """As ``dg`` loads them."""
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
