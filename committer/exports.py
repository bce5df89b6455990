"""Exports of `zero_rename.committer`."""

from .commit.interrupted import JobInterrupted
from .commit.snapshot import Snapshot
from .commit.state.context import Context, Progress, Waiting
from .commit.state.job_state import Aborted, Committed, JobState, OpenedJob, PartitionCommit
from .errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DamagedError,
    DataLostError,
    DestinationExistsError,
    FastRootGoneError,
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
from .format.as_of import AsOf
from .format.job_spec import (
    Content,
    Coordination,
    FileOptions,
    JobSpec,
    Mode,
    OnConflict,
    OnRepeat,
    Owner,
    Readers,
    SchemaMode,
    SuccessMarkers,
)
from .format.layout import UNPARTITIONED, TableRoot
from .format.parquet.task_writer import TaskWriter
from .format.read_base import ReadBase
from .format.records.data_file import DataFile
from .format.records.decision import Verdict
from .format.records.pending_file import PendingFile, TaskResult
from .format.records.success_marker import ManifestReference, SuccessMarker
from .overview.orphaned_uploads import OrphanedUploads
from .overview.partition_history import HistoryEntry, PartitionHistory
from .overview.recent_jobs import JobManifest, PartitionChange, SeenJob
from .overview.run_failures import RunFailure
from .overview.seen_partitions import SeenPartition, SeenState
from .overview.table_overview import TableOverview
from .overview.under_way import JobUnderWay
from .scan.table_scan import TableScan
from .store.upload_stream import DelayedOutputStream
from .table import Table
from .upkeep.adopt import AdoptAction, AdoptedPartition, AdoptReport
from .upkeep.gc.collect import GcReport
from .upkeep.problem import Problem
from .upkeep.purge import PurgeAction, PurgeEntry, PurgeReport
from .upkeep.rebuilt_heads import RebuildAction, RebuiltHead
from .upkeep.recovery import OpenJob, Outcome, Recovered
from .upkeep.repair import RepairAction, Repaired
from .upkeep.verify import Finding, FindingKind
from .write_job import WriteJob

__all__ = [
    "UNPARTITIONED",
    "Aborted",
    "AdoptAction",
    "AdoptReport",
    "AdoptedPartition",
    "AsOf",
    "CommitConflictError",
    "CommitStateUnknownError",
    "Committed",
    "Content",
    "Context",
    "Coordination",
    "DamagedError",
    "DataFile",
    "DataLostError",
    "DelayedOutputStream",
    "DestinationExistsError",
    "FastRootGoneError",
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
    "ManifestReference",
    "Mode",
    "OnConflict",
    "OnRepeat",
    "OpenJob",
    "OpenedJob",
    "OrphanedUploads",
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
    "Readers",
    "RebuildAction",
    "RebuiltHead",
    "RecordDamagedError",
    "Recovered",
    "RefusedError",
    "RepairAction",
    "Repaired",
    "RunFailure",
    "SchemaMode",
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
