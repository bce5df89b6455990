"""Maintenance of destinations of any committer: recovery, purge, verification, conflicts."""

from .conflicts import ConflictOrder, find_at, resolve_by_restore
from .destinations import Destination, destination_at, destinations_below, destinations_in
from .purging import PurgedDestination, PurgedEntry, PurgeOrder, SettledJob, purge_destination
from .upkeep import Upkeep, as_markdown, look_after

__all__ = [
    "ConflictOrder",
    "Destination",
    "PurgeOrder",
    "PurgedDestination",
    "PurgedEntry",
    "SettledJob",
    "Upkeep",
    "as_markdown",
    "destination_at",
    "destinations_below",
    "destinations_in",
    "find_at",
    "look_after",
    "purge_destination",
    "resolve_by_restore",
]
