"""Files on disk, found by a first job, and checks that its own files fit beside them."""

from __future__ import annotations

import re

import pyarrow as pa

from ..errors import InvalidInputError, TableMismatchError
from ..format.job_spec import JobSpec, Mode, SchemaMode
from ..format.layout import TableRoot
from ..format.parquet.foreign_columns import ForeignFile, check_files, joined, refuse_unfit
from ..format.schema.compatibility import check_types
from ..format.schema.directory import Directory, arrange, canonical_name
from ..format.schema.other_formats import refuse_other_format
from ..store.listing import list_objects
from ..store.requests import Step
from .state.context import Context
from .state.tolerance import undamaged

#: Spark's names of bucket files (``BucketingUtils.bucketIdToString``).
_BUCKET = re.compile(r"_\d{5}\.c\d{3}(\.[^/]*)?$")


def list_directory(context: Context) -> Step[Directory]:
    """List the data files below a root, arranged by the directories in which they lie.

    :raises TableMismatchError: the folder belongs to another table format.
    """
    listing = yield from list_objects(f"{context.root.prefix}/")
    refuse_other_format(context.root, listing.keys)
    return arrange(context.root, listing.objects)


def replaces_all(spec: JobSpec) -> bool:
    return spec.replace_table and spec.mode is Mode.REPLACE


def layout_of(directory: Directory, spec: JobSpec) -> tuple[str, ...]:
    """Return the job's partition columns; if it names none, those on disk.

    :raises InvalidInputError: the job's columns do not fit the partition columns on disk.
    """
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
    """Refuse a table whose rows would lie in other directories than the rows on disk.

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


def columns_beside(
    context: Context, spec: JobSpec, partition_by: tuple[str, ...], directory: Directory
) -> Step[pa.Schema]:
    """Return the columns of a table whose first job writes beside other files.

    They are the job's; with schema mode *merge* also those of the files. The footers of all files
    are read.

    :raises TableMismatchError: a file has a column that the table would not show, or could not
        read.
    :raises DamagedError: a file is not Parquet.
    """
    files = [
        ForeignFile.of(name, item) for name, items in directory.partitions.items() for item in items
    ]
    columns = yield from context.read_columns(files, partition_by)
    found = list(zip(files, columns, strict=True))
    if spec.schema_mode is not SchemaMode.MERGE:
        check_files(
            context.root,
            spec.schema,
            found,
            "Select and cast the job's columns to those of the files; or let the table have those "
            "of the files, too, by schema_mode=merge (option mergeSchema); or write to another "
            "root; or replace all files with replace_table.",
        )
        return spec.schema
    for _, it in found:
        undamaged(it)
    schema, unfit = joined(spec.schema, found)
    refuse_unfit(
        context.root,
        unfit,
        "Nothing was written.",
        "Cast the job's columns to those of the files, or write to another root.",
    )
    return schema


def check_no_buckets(root: TableRoot, directory: Directory) -> None:
    """Refuse to write beside the bucket files of a catalog's table.

    Spark fails every query that groups or joins by the buckets once a file's name has no bucket
    (``INVALID_BUCKET_FILE``).

    :raises TableMismatchError: there are bucket files.
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
