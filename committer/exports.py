"""Exports of `zero_rename.committer`."""

from .errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DamagedError,
    DataLostError,
    DestinationExistsError,
    InvalidInputError,
    JobFencedError,
    OtherJobError,
    OutcomeUnknownError,
    RecordDamagedError,
    RefusedError,
    SettingsRefusedError,
    SnapshotGoneError,
    StoreFullError,
    StoreRefusedError,
    StoreUnfitError,
    StoreUnreachableError,
    StreamClosedError,
    StreamError,
    TableMismatchError,
    TableNotFoundError,
    TaskLateError,
    TaskResultsError,
    UnfinishedAbortError,
    UnfinishedCommitError,
    UnsupportedTypeError,
    VerificationError,
    ZeroRenameError,
)
from .gc.collect import GcReport
from .interrupted import JobInterrupted
from .job_spec import (
    Coordination,
    FileOptions,
    JobSpec,
    Mode,
    OnConflict,
    OnRepeat,
    Owner,
    SuccessMarkers,
)
from .layout import UNPARTITIONED, TableRoot
from .maintenance.adopt import AdoptAction, AdoptedPartition, AdoptReport
from .maintenance.problem import Problem
from .maintenance.purge import PurgeAction, PurgeEntry, PurgeReport
from .maintenance.recovery import OpenJob, Outcome, Recovered
from .maintenance.repair import RepairAction, Repaired
from .maintenance.verify import Finding, FindingKind
from .overview.left_overs import LeftOvers
from .overview.partition_history import HistoryEntry, PartitionHistory
from .overview.recent_jobs import JobManifest, PartitionChange, SeenJob
from .overview.run_failures import RunFailure
from .overview.seen_partitions import SeenPartition, SeenState
from .overview.table_overview import TableOverview
from .overview.under_way import JobUnderWay
from .parquet.task_writer import TaskWriter
from .protocol.snapshot import Snapshot
from .read_base import ReadBase
from .records.data_file import DataFile
from .records.decision import Verdict
from .records.pending_file import PendingFile, TaskResult
from .records.success_marker import ManifestReference, SuccessMarker
from .rewrites.rebuilt_heads import RebuildAction, RebuiltHead
from .s3.upload_stream import DelayedOutputStream
from .scan.table_scan import TableScan
from .state.context import Context, Progress, Waiting
from .state.job_state import Aborted, Committed, JobState, OpenedJob, PartitionCommit
from .table import Table
from .write_job import WriteJob

__all__ = [
    "UNPARTITIONED",
    "Aborted",
    "AdoptAction",
    "AdoptReport",
    "AdoptedPartition",
    "CommitConflictError",
    "CommitStateUnknownError",
    "Committed",
    "Context",
    "Coordination",
    "DamagedError",
    "DataFile",
    "DataLostError",
    "DelayedOutputStream",
    "DestinationExistsError",
    "FileOptions",
    "Finding",
    "FindingKind",
    "GcReport",
    "HistoryEntry",
    "InvalidInputError",
    "JobFencedError",
    "JobInterrupted",
    "JobManifest",
    "JobSpec",
    "JobState",
    "JobUnderWay",
    "LeftOvers",
    "ManifestReference",
    "Mode",
    "OnConflict",
    "OnRepeat",
    "OpenJob",
    "OpenedJob",
    "OtherJobError",
    "Outcome",
    "OutcomeUnknownError",
    "Owner",
    "PartitionChange",
    "PartitionCommit",
    "PartitionHistory",
    "PendingFile",
    "Problem",
    "Progress",
    "PurgeAction",
    "PurgeEntry",
    "PurgeReport",
    "ReadBase",
    "RebuildAction",
    "RebuiltHead",
    "RecordDamagedError",
    "Recovered",
    "RefusedError",
    "RepairAction",
    "Repaired",
    "RunFailure",
    "SeenJob",
    "SeenPartition",
    "SeenState",
    "SettingsRefusedError",
    "Snapshot",
    "SnapshotGoneError",
    "StoreFullError",
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
    "TableOverview",
    "TableRoot",
    "TableScan",
    "TaskLateError",
    "TaskResult",
    "TaskResultsError",
    "TaskWriter",
    "UnfinishedAbortError",
    "UnfinishedCommitError",
    "UnsupportedTypeError",
    "Verdict",
    "VerificationError",
    "Waiting",
    "WriteJob",
    "ZeroRenameError",
]
