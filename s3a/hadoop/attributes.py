"""Abilities of each committer: the nine attributes of Table V of the zero-rename paper.

The paper's column "S3A" is that of magic, directory and partitioned; ``classic`` is not in its
table, and is judged here for S3, where a rename is a copy of every object and a removal
(``FileOutputCommitter`` with algorithm 1, Spark's default).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

PAPER = "zero-rename committer paper, Table V"


@dataclass(frozen=True)
class Attributes:
    """Nine yes or no answers, in the paper's order.

    :param speculative_tasks: two attempts of one task may run side by side.
    :param recoverable_job: what a dead driver left can be brought to an end.
    :param abortable_task: a task attempt can be undone.
    :param abortable_job: a whole job can be undone.
    :param uncommitted_output_observable: readers see files of tasks that have not committed.
    :param committed_output_observable: readers see files of committed tasks before their job
        commits.
    :param atomic_task_commit: a task commits all of its files or none.
    :param atomic_job_commit: a job becomes visible as a whole.
    :param partition_resilient: an executor that is cut off and comes back changes nothing.
    :param notes: what has to be said besides yes and no, by attribute.
    :param source: whose judgement it is.
    """

    speculative_tasks: bool
    recoverable_job: bool
    abortable_task: bool
    abortable_job: bool
    uncommitted_output_observable: bool
    committed_output_observable: bool
    atomic_task_commit: bool
    atomic_job_commit: bool
    partition_resilient: bool
    notes: Mapping[str, str] = field(default_factory=dict)
    source: str = PAPER

    def rows(self) -> dict[str, bool]:
        """The nine answers by name, in the paper's order."""
        return {name: getattr(self, name) for name in NAMES}


NAMES = tuple(f.name for f in fields(Attributes) if f.name not in ("notes", "source"))
#: The paper's words for them.
TITLES = {
    "speculative_tasks": "speculative tasks supported",
    "recoverable_job": "recoverable job",
    "abortable_task": "abortable task",
    "abortable_job": "abortable job",
    "uncommitted_output_observable": "uncommitted task output observable",
    "committed_output_observable": "committed task output observable",
    "atomic_task_commit": "atomic task commit",
    "atomic_job_commit": "atomic job commit",
    "partition_resilient": "resilient to a partitioned executor",
}


#: What the paper says of S3A.
_PAPERS = Attributes(
    speculative_tasks=True,
    recoverable_job=False,
    abortable_task=True,
    abortable_job=True,
    uncommitted_output_observable=False,
    committed_output_observable=False,
    atomic_task_commit=True,
    atomic_job_commit=False,
    partition_resilient=True,
    notes={
        "recoverable_job": "by itself; zero-rename s3a-recover rolls forward or back",
        "atomic_job_commit": "files appear one by one while the job commits",
    },
)
_IN_MEMORY = "with its pending files in memory, only by the process that wrote them"
ATTRIBUTES: Mapping[str, Attributes] = {
    "zero_rename": replace(
        _PAPERS,
        recoverable_job=True,
        atomic_job_commit=True,
        notes={
            "abortable_task": "a killed one by the sweep when its job closes",
            "atomic_job_commit": "for readers through heads; partition by partition for listings",
        },
        source="docs/protocol.md, with the test of each",
    ),
    "magic": replace(_PAPERS, notes={**_PAPERS.notes, "abortable_task": _IN_MEMORY}),
    "directory": _PAPERS,
    "partitioned": _PAPERS,
    "classic": replace(
        _PAPERS,
        speculative_tasks=False,
        atomic_task_commit=False,
        partition_resilient=False,
        notes={
            "speculative_tasks": "the later attempt removes what the earlier is still copying",
            "committed_output_observable": "yes with algorithm 2",
            "atomic_task_commit": "a copy of every object; what was copied when it fails stays",
            "atomic_job_commit": "copies for minutes; a failure in it leaves a part of the files",
        },
        source="FileOutputCommitter on S3, judged here; the paper's table leaves it out",
    ),
}
