"""The open record: a job has begun and is not wholly cleaned up yet."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from ..job_spec import DuringApply, JobSpec, Mode, OnConflict, Owner, SuccessMarkers
from .codec import Fields, decode, encode


@dataclass(frozen=True)
class OpenRecord:
    """Who runs a job, with which policy. Rewritten as a sign of life, removed last.

    :param interval: seconds between signs of life; ``None`` when nobody gives any.
    :param max_duration: seconds after which a job without signs of life may be fenced.
    :param opened_at: when the first version was written, by the store's clock; ``None`` in the
        first version itself, whose Last-Modified says it.
    :param partitions: partitions that the job names for a replace.
    """

    job: str
    write_id: str
    owner: Owner
    mode: Mode
    on_conflict: OnConflict
    during_apply: DuringApply
    success_markers: SuccessMarkers
    once: str | None
    partitions: tuple[str, ...]
    replace_table: bool
    max_duration: float
    interval: float | None = None
    opened_at: float | None = None

    @staticmethod
    def of(job: str, write_id: str, spec: JobSpec) -> OpenRecord:
        return OpenRecord(
            job=job,
            write_id=write_id,
            owner=spec.owner,
            mode=spec.mode,
            on_conflict=spec.on_conflict,
            during_apply=spec.during_apply,
            success_markers=spec.success_markers,
            once=spec.once,
            partitions=spec.replace_partitions,
            replace_table=spec.replace_table,
            max_duration=spec.max_duration,
        )

    @property
    def patience(self) -> float:
        """Seconds of silence after which this job counts as dead, by default."""
        if self.interval is None:
            return self.max_duration
        return max(10 * self.interval, 600.0)

    def encode(self) -> bytes:
        members = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "write_id"}
        return encode("open", self.write_id, members | {"owner": asdict(self.owner)})

    @staticmethod
    def decode(body: bytes, key: str) -> OpenRecord:
        read = decode(body, "open", key)
        return OpenRecord(
            job=read.string("job"),
            write_id=read.string("write_id"),
            owner=owner_from(read.within("owner")),
            mode=read.choice("mode", Mode),
            on_conflict=read.choice("on_conflict", OnConflict),
            during_apply=read.choice("during_apply", DuringApply),
            success_markers=read.choice("success_markers", SuccessMarkers),
            once=read.optional_string("once"),
            partitions=read.strings("partitions"),
            replace_table=read.boolean("replace_table"),
            max_duration=read.number("max_duration"),
            interval=read.number("interval", None),
            opened_at=read.number("opened_at", None),
        )


def owner_from(read: Fields) -> Owner:
    """Read an :class:`~.job_spec.Owner`; members unknown here are left out."""
    values: dict[str, Any] = {}
    for field in fields(Owner):
        numeric = field.name in ("map_index", "try_number", "pid")
        # Airflow's map index of an unmapped task is -1, so sign is not checked here.
        values[field.name] = (
            read.signed(field.name) if numeric else read.optional_string(field.name)
        )
    return Owner(**values)
