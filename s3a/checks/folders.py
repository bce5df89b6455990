"""Folders for what is not committed: staging on the cluster, buffers on each machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..hadoop.effective_settings import DEFAULT
from ..hadoop.settings import BUFFER_KEY, STAGING_KEY
from .check import STAGING, Severity, check
from .job_facts import JobFacts

_DEFAULT_FS = "fs.defaultFS"
#: Folders of a machine that every user may write to.
_SHARED = ("/tmp", "/var/tmp", "/dev/shm")
#: Less room than this is called full: a few blocks of a few tasks.
_LITTLE_ROOM = 2 * 1024**3


@check(
    "staging-not-shared",
    Severity.ERROR,
    "what is pending would stay on each machine's own disk",
    reason="Tasks leave the list of their uploads on the cluster's default file system, and the "
    "driver commits what it finds there. Where that is each machine's own disk, it finds none of "
    "what executors left: the job ends well, _SUCCESS names no file, and every row is lost.",
    source="Paths.getMultipartUploadCommitsDirectory; StagingCommitter.createWrappedCommitter; "
    "tried with Spark 4.3.0 and Hadoop 3.5.0",
    remedy="Set fs.defaultFS to HDFS or another file system that all machines share, or use magic, "
    "which needs none.",
    committers=STAGING,
)
def staging_not_shared(c: JobFacts) -> Iterator[str]:
    setting = c.settings.get(_DEFAULT_FS)
    local = setting is None or setting.value.startswith("file:")
    # Hadoop's default says nothing of a cluster whose own files were not read.
    if c.is_cluster and local and setting is not None and setting.origin != DEFAULT:
        yield c.describe(_DEFAULT_FS, STAGING_KEY)


@check(
    "staging-unknown",
    Severity.WARNING,
    "the cluster's shared file system is not known",
    reason="As staging-not-shared; fs.defaultFS is in the cluster's own core-site.xml, if "
    "anywhere, and is looked at in the job.",
    source="Paths.getMultipartUploadCommitsDirectory",
    remedy="Say spark.hadoop.fs.defaultFS, or use magic, which needs no shared file system.",
    committers=STAGING,
)
def staging_unknown(c: JobFacts) -> Iterator[str]:
    setting = c.settings.get(_DEFAULT_FS)
    if c.is_cluster and (setting is None or setting.origin == DEFAULT):
        yield c.describe(_DEFAULT_FS)


@check(
    "staging-on-s3",
    Severity.WARNING,
    "what is pending is kept on S3 and renamed there",
    reason="The lists of uploads go through a FileOutputCommitter: on S3 its renames are copies, "
    "and a task's commit is not atomic.",
    source="StagingCommitter.createWrappedCommitter",
    remedy="Keep the default file system on HDFS, or use magic.",
    committers=STAGING,
)
def staging_on_s3(c: JobFacts) -> Iterator[str]:
    if re.match(r"s3[an]?://", c.value(_DEFAULT_FS)):
        yield c.describe(_DEFAULT_FS)


@check(
    "staging-dir-shared",
    Severity.WARNING,
    "one staging folder for all users",
    reason="Each user gets a folder below it, made by whoever comes first with that user's rights: "
    "the next one may not write there; and a clean-up by age takes what jobs still need.",
    source="Paths.tempDirForStaging, getMultipartUploadCommitsDirectory",
    remedy="Leave it at tmp/staging, which is below each user's home, or put ${user.name} into it.",
    committers=STAGING,
)
def staging_dir_shared(c: JobFacts) -> Iterator[str]:
    path = re.sub(r"^[a-z0-9]+://[^/]*", "", c.value(STAGING_KEY))
    if path.startswith("/") and "${user.name}" not in path and not path.startswith("/user/"):
        yield c.describe(STAGING_KEY)


@check(
    "buffer-dir-shared",
    Severity.WARNING,
    "a buffer folder that other users write to as well",
    reason="Blocks and staged files lie there until they are uploaded: another user can fill it, "
    "read it or stand in the way with a folder of the same name.",
    source="LocalDirAllocator with fs.s3a.buffer.dir; Paths.getLocalTaskAttemptTempDir",
    remedy="Leave it out (a folder of the user, or YARN's LOCAL_DIRS), or put ${user.name} "
    "into it.",
)
def buffer_dir_shared(c: JobFacts) -> Iterator[str]:
    if c.shared_dirs:
        yield f"{c.describe(BUFFER_KEY)}: others may write to {', '.join(c.shared_dirs)}"
        return
    for folder in c.value(BUFFER_KEY).split(","):
        path = folder.strip().removeprefix("file:")
        if path.rstrip("/") in _SHARED or (
            path.startswith(tuple(f"{place}/" for place in _SHARED)) and "${" not in path
        ):
            yield c.describe(BUFFER_KEY)
            return


@check(
    "buffer-too-small",
    Severity.ERROR,
    "no room for what tasks stage",
    reason="The staging committers keep all output of a task on local disk until it commits.",
    source="StagingCommitter (work path); Paths.getLocalTaskAttemptTempDir",
    remedy="Give a buffer_dir on a larger disk, write smaller tasks, or use magic, which keeps "
    "only a few blocks.",
    committers=STAGING,
)
def buffer_too_small(c: JobFacts) -> Iterator[str]:
    free, needed = c.buffer_free_bytes, c.expected_bytes
    if free is not None and needed is not None and free < needed:
        yield f"{c.describe(BUFFER_KEY)} has {free:,} bytes free, {needed:,} are expected"


@check(
    "buffer-nearly-full",
    Severity.WARNING,
    "little room where S3A buffers",
    reason="Every block waits on disk until it is uploaded (fs.s3a.fast.upload.buffer=disk): a "
    "full disk fails the task.",
    source="S3ABlockOutputStream; LocalDirAllocator",
    remedy="Give a buffer_dir on another disk.",
)
def buffer_nearly_full(c: JobFacts) -> Iterator[str]:
    free = c.buffer_free_bytes
    if free is not None and free < _LITTLE_ROOM and not list(buffer_too_small(c)):
        yield f"{c.describe(BUFFER_KEY)} has {free:,} bytes free"
