"""Tables that are kept in a log, as users meet them: Delta tables, committed without renames."""

from .delta_table import DeltaTable as DeltaTable
from .delta_table import LogVersion as LogVersion
from .delta_table import PlannedRestore as PlannedRestore
