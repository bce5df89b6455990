"""Files that a first job finds on disk, and whether its own may lie beside them."""

from __future__ import annotations

import re

from ..errors import InvalidInputError, TableMismatchError
from ..format.job_spec import JobSpec, Mode
from ..format.layout import TableRoot
from ..format.schema.compatibility import check_types
from ..format.schema.directory import Directory, arrange, canonical_name
from ..store.listing import list_objects
from ..store.requests import Step
from .state.context import Context

#: How Spark names a bucket's file (``BucketingUtils.bucketIdToString``).
_BUCKET = re.compile(r"_\d{5}\.c\d{3}(\.[^/]*)?$")


def list_directory(context: Context) -> Step[Directory]:
    listing = yield from list_objects(f"{context.root.prefix}/")
    return arrange(context.root, listing.objects)


def replaces_all(spec: JobSpec) -> bool:
    return spec.replace_table and spec.mode is Mode.REPLACE


def layout_of(directory: Directory, spec: JobSpec) -> tuple[str, ...]:
    """The partition columns: the job's, or those on disk where it names none."""
    if spec.partition_by is not None or directory.partition_by is None:
        return spec.partition_by or ()
    try:
        check_types(spec.schema, directory.partition_by)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"There are files here already, partitioned by {_columns(directory.partition_by)}, "
            f"and the job does not fit: {error.message} Nothing was written.",
            remedy=f"{error.remedy or 'Add these columns to the data.'} Or write to another root.",
        ) from error
    return directory.partition_by


def check_layout(directory: Directory, partition_by: tuple[str, ...], spec: JobSpec) -> None:
    """Refuse a table whose rows would not lie as those that are there.

    :raises TableMismatchError: other partition columns, or values that are spelled otherwise.
    """
    elsewhere = "or write to another root"
    if directory.contradiction is not None:
        raise _contradicts(
            directory.contradiction, f"Move away what does not belong here, {elsewhere}."
        )
    there = directory.partition_by
    if there is None:
        return
    if there != partition_by:
        example = next(iter(directory.partitions))
        lie = f"partitioned by {_columns(there)} ({example})" if there else "at its root"
        raise _contradicts(
            f"they lie {lie}, and the job asks for {_columns(partition_by)}",
            f"Write with partitionBy={','.join(there)!r}, or leave it out, {elsewhere}.",
        )
    for name in directory.partitions:
        own = canonical_name(name, spec.schema, partition_by)
        if own is None:
            raise _contradicts(
                f"{name} has a value that is none of its column's type "
                f"({_types(spec, partition_by)})",
                f"Make the column a string, or move the directory away, {elsewhere}.",
            )
        if own != name and not replaces_all(spec):
            raise _contradicts(
                f"the job's rows of the directory {name} would lie beside it, in {own}",
                "Make the column a string that is spelled as the directories are (for numbers "
                f"with zeros before them: lpad), or rename the directories, {elsewhere}.",
            )


def refuse_older(root: TableRoot, directory: Directory) -> None:
    """Refuse a table whose readers go by heads over files that listings show: who lists would see
    these and nothing else, for ever.

    :raises TableMismatchError: there are some.
    """
    item = next((item for items in directory.partitions.values() for item in items), None)
    if item is not None:
        raise _contradicts(
            f"{item.key}, and readers=heads was asked for: who lists would see that file for ever, "
            "and nothing of the table",
            "Write to another root, or leave readers out: readers of this one then list. "
            f"zero-rename copy {root.url} NEW --readers heads copies what is there.",
        )


def check_no_buckets(root: TableRoot, directory: Directory) -> None:
    """Refuse to write beside the buckets of a catalog's table: a file whose name has no bucket
    makes Spark fail all that groups or joins by them (``INVALID_BUCKET_FILE``).

    :raises TableMismatchError: there are some.
    """
    items = (item for items in directory.partitions.values() for item in items)
    bucket = next((item.key for item in items if _BUCKET.search(item.key)), None)
    if bucket is not None:
        raise _contradicts(
            f"{bucket} is a bucket of a table that some catalog of Spark's has as CLUSTERED BY, by "
            "which Spark cannot group or join any more once a job without buckets writes there",
            "Make the catalog's table anew without CLUSTERED BY over the same files, and say here "
            f"that they are no buckets: zero-rename adopt {root.url} --apply; or write to another "
            "root.",
        )


def _contradicts(why: str, remedy: str) -> TableMismatchError:
    return TableMismatchError(
        f"There are files here already: {why}. Nothing was written.", remedy=remedy
    )


def _columns(partition_by: tuple[str, ...]) -> str:
    return ", ".join(partition_by) or "nothing"


def _types(spec: JobSpec, partition_by: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {spec.schema.field(name).type}" for name in partition_by)
