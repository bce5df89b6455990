"""What `zero_rename.committer` exports."""

from .context import Context, Progress, Waiting
from .data_file import DataFile
from .decision import Verdict
from .doctor import Complaint
from .errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DamagedError,
    DataLostError,
    DestinationExistsError,
    InvalidInputError,
    JobFencedError,
    OutcomeUnknownError,
    RecordDamagedError,
    RefusedError,
    SettingsRefusedError,
    SnapshotGoneError,
    StoreRefusedError,
    StoreUnfitError,
    StoreUnreachableError,
    StreamClosedError,
    StreamError,
    TableMismatchError,
    TableNotFoundError,
    TaskResultsError,
    UnfinishedCommitError,
    UnsupportedTypeError,
    VerificationError,
    ZeroRenameError,
)
from .layout import UNPARTITIONED, TableRoot
from .opened import Aborted, Committed, OpenedJob, PartitionCommit
from .pending import PendingFile, TaskResult
from .plain_job import PlainJob
from .policy import (
    Coordination,
    DuringApply,
    FileOptions,
    JobSpec,
    Mode,
    OnConflict,
    OnRepeat,
    Owner,
    SuccessMarkers,
)
from .recovery import OpenJob, Outcome, PurgeAction, PurgeEntry, PurgeReport, Recovered
from .repair import RepairAction, Repaired
from .snapshot import Snapshot
from .stream import DelayedOutputStream
from .success_marker import ManifestReference, SuccessMarker
from .table import JobState, Table
from .task_writer import TaskWriter
from .verify import Finding, FindingKind

__all__ = [
    "UNPARTITIONED",
    "Aborted",
    "CommitConflictError",
    "CommitStateUnknownError",
    "Committed",
    "Complaint",
    "Context",
    "Coordination",
    "DamagedError",
    "DataFile",
    "DataLostError",
    "DelayedOutputStream",
    "DestinationExistsError",
    "DuringApply",
    "FileOptions",
    "Finding",
    "FindingKind",
    "InvalidInputError",
    "JobFencedError",
    "JobSpec",
    "JobState",
    "ManifestReference",
    "Mode",
    "OnConflict",
    "OnRepeat",
    "OpenJob",
    "OpenedJob",
    "Outcome",
    "OutcomeUnknownError",
    "Owner",
    "PartitionCommit",
    "PendingFile",
    "PlainJob",
    "Progress",
    "PurgeAction",
    "PurgeEntry",
    "PurgeReport",
    "RecordDamagedError",
    "Recovered",
    "RefusedError",
    "RepairAction",
    "Repaired",
    "SettingsRefusedError",
    "Snapshot",
    "SnapshotGoneError",
    "StoreRefusedError",
    "StoreUnfitError",
    "StoreUnreachableError",
    "StreamClosedError",
    "StreamError",
    "SuccessMarker",
    "SuccessMarkers",
    "Table",
    "TableMismatchError",
    "TableNotFoundError",
    "TableRoot",
    "TaskResult",
    "TaskResultsError",
    "TaskWriter",
    "UnfinishedCommitError",
    "UnsupportedTypeError",
    "Verdict",
    "VerificationError",
    "Waiting",
    "ZeroRenameError",
]
