"""Delta tables for users: tables that are kept in a log and committed without renames."""

from ..log.repairing import RepairedEntry as RepairedEntry
from ..log.repairing import RepairOutcome as RepairOutcome
from .delta_properties import RetentionChange as RetentionChange
from .delta_restoring import RestoredVersion as RestoredVersion
from .delta_table import DeltaTable as DeltaTable
from .last_changes import ChangesSince as ChangesSince
from .last_changes import EntryChange as EntryChange
from .last_changes import LastChange as LastChange
from .last_changes import LastChanges as LastChanges
from .last_changes import Since as Since
from .log_store import log_store_jar as log_store_jar
from .log_store import log_store_settings as log_store_settings
from .readable_delta import LogVersion as LogVersion
from .readable_delta import NewestEntry as NewestEntry
