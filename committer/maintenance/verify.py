"""Comparing what heads name with what is in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ..errors import InvalidInputError
from ..job_spec import Coordination
from ..layout import UNPARTITIONED
from ..protocol.snapshot import Survey, read_table, survey
from ..records.data_file import DataFile
from ..records.success_marker import SuccessMarker
from ..s3.requests import Absent, All, Get, ListedObject, Step
from ..state.context import Context
from ..state.data_listing import list_data


class FindingKind(StrEnum):
    """What is wrong with a file.

    Unnamed: readers that list see it, readers through the heads do not: a foreign file that came
    after the partition got a head, or one whose removal is outstanding. Damaged: a record that
    says which files the partition holds is gone or cannot be read.
    """

    MISSING = "missing"
    WRONG_SIZE = "wrong size"
    UNNAMED = "unnamed"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class Finding:
    """One difference between a head and the store."""

    partition: str
    key: str
    kind: FindingKind
    detail: str


def verify(context: Context) -> Step[list[Finding]]:
    """Compare every partition's files with a listing: one LIST a partition.

    :raises InvalidInputError: a table of coordination *none*, where nothing names files.
    """
    table = yield from read_table(context)
    if table.coordination is Coordination.NONE:
        raise InvalidInputError(
            "A table of coordination=none has no heads that a listing could be compared with.",
            table=context.root.url,
        )
    context = replace(context, facts=table.facts)
    found: Survey = yield from survey(context)
    findings = [
        Finding(partition, error.key or "", FindingKind.DAMAGED, str(error))
        for partition, error in sorted(found.damaged.items())
    ]
    named = found.snapshot.by_partition()
    partitions = sorted(found.snapshot.epochs)
    listings = yield All(tuple(list_data(context.root, partition) for partition in partitions))
    for partition, listed in zip(partitions, listings, strict=True):
        findings += _compare(partition, named.get(partition, []), listed)
    return findings


def _compare(partition: str, named: list[DataFile], listed: list[ListedObject]) -> list[Finding]:
    there = {item.key: item for item in listed}
    findings = []
    for file in named:
        item = there.pop(file.key, None)
        if item is None:
            kind, detail = FindingKind.MISSING, f"{file.rows} rows of job {file.job or 'unknown'}"
            findings.append(Finding(partition, file.key, kind, detail))
        elif item.size != file.size:
            detail = f"{item.size} bytes, decided were {file.size}"
            findings.append(Finding(partition, file.key, FindingKind.WRONG_SIZE, detail))
    findings += [
        Finding(partition, key, FindingKind.UNNAMED, f"{item.size} bytes")
        for key, item in sorted(there.items())
    ]
    return findings


def verify_listed(context: Context, files: Sequence[DataFile]) -> Step[list[Finding]]:
    """Compare the markers of another committer with the files that are there.

    :param files: all that a listing shows.
    """
    there = {file.key for file in files}
    places = dict.fromkeys((UNPARTITIONED, *sorted({file.partition for file in files})))
    found = yield All(tuple(_marker(context, place) for place in places))
    markers = {place: marker for place, marker in zip(places, found, strict=True) if marker}
    findings = []
    for place, marker in markers.items():
        for name in marker.filenames:
            key = name.removeprefix("/")
            partition = context.root.partition_of_data_key(key) or place
            # A later job may have replaced what an earlier marker names.
            others = (markers.get(partition), markers.get(UNPARTITIONED))
            latest = max(other.timestamp_ms for other in (marker, *others) if other)
            if key not in there and marker.timestamp_ms == latest:
                detail = f"named by the _SUCCESS of job {marker.job or 'unknown'}"
                findings.append(Finding(partition, key, FindingKind.MISSING, detail))
    return findings


def _marker(context: Context, partition: str) -> Step[SuccessMarker | None]:
    found = yield Get(context.root.marker_key(partition))
    return None if isinstance(found, Absent) else SuccessMarker.parse_or_none(found.body)
