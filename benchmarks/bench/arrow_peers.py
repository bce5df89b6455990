"""What needs no Spark: pyarrow's datasets, awswrangler, delta-rs and pyiceberg."""

# They are in an environment of their own.

from __future__ import annotations

import os
import uuid
from typing import Any

from bench import rows as made
from bench.workloads import QUERIES, Workload

#: What they cut into files by partitions alone, where there are more.
_CUT_BY_ROWS = 8


class ArrowSide:
    """The rows, as each library takes them."""

    def __init__(self) -> None:
        self._rows: tuple[Any, Any] = (None, None)
        self._pandas: Any = None
        self._catalog: Any = None
        #: What is merged next.
        self.source: Any = None

    def close(self) -> None:
        pass

    def prepare(self, workload: Workload) -> None:
        self.rows(workload)
        if workload.verb == "merge":
            self.source = made.source(workload)
            return
        self.pandas(workload)

    def rows(self, workload: Workload) -> Any:
        """The rows of :meth:`.spark_peers.SparkSide.frame`, in one Arrow table. Many files without
        partitions become as many partitions, by ``part``."""
        import numpy as np

        shape = (workload.rows, workload.tasks, workload.partitions, workload.ordered)
        if self._rows[0] != shape:
            ids = np.arange(workload.rows)
            more = {}
            if workload.partitions:
                any_order = ids * 2654435761 % 4294967296 % workload.partitions
                ordered = ids * workload.partitions // workload.rows
                more["day"] = ordered if workload.ordered else any_order
            elif workload.tasks > _CUT_BY_ROWS:
                more["part"] = ids * workload.tasks // workload.rows
            self._rows, self._pandas = (shape, made.table_of(ids, ids / 3.0, **more)), None
        return self._rows[1]

    def pandas(self, workload: Workload) -> Any:
        """What awswrangler takes."""
        rows = self.rows(workload)
        if self._pandas is None:
            self._pandas = rows.to_pandas()
        return self._pandas

    def by(self, workload: Workload) -> list[str]:
        return [name for name in ("day", "part") if name in self.rows(workload).column_names]

    @property
    def catalog(self) -> Any:
        """pyiceberg's, in SQLite, the same for all hosts."""
        if self._catalog is None:
            from pyiceberg.catalog.sql import SqlCatalog

            self._catalog = SqlCatalog(
                "bench",
                uri=os.environ["CATALOG"],
                **{
                    "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
                    "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
                    "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
                    "s3.region": os.environ["AWS_REGION"],
                },
            )
            self._catalog.create_namespace_if_not_exists("bench")
        return self._catalog


def _path(url: str) -> str:
    return url.removeprefix("s3://")


def _expression(workload: Workload) -> Any:
    import pyarrow.compute as pc

    condition = QUERIES[workload.query][0]
    if not condition:
        return None
    name, operator, value = condition
    return pc.field(name) < value if operator == "<" else pc.field(name) == value


def _columns(workload: Workload) -> list[str] | None:
    column = QUERIES[workload.query][1]
    return [column] if column else None


def _s3() -> Any:
    from pyarrow.fs import S3FileSystem

    endpoint = os.environ["AWS_ENDPOINT_URL"]
    return S3FileSystem(endpoint_override=endpoint, region=os.environ["AWS_REGION"])


def dataset(
    side: ArrowSide, workload: Workload, url: str, behavior: str = "overwrite_or_ignore"
) -> None:
    import pyarrow.dataset as ds

    by = side.by(workload)
    cut: dict[str, Any] = {}
    if not by:
        cut["max_rows_per_file"] = cut["max_rows_per_group"] = workload.rows // workload.files
    ds.write_dataset(
        side.rows(workload),
        _path(url),
        filesystem=_s3(),
        format="parquet",
        file_options=ds.ParquetFileFormat().make_write_options(compression="zstd"),
        partitioning=by or None,
        partitioning_flavor="hive" if by else None,
        basename_template=f"{uuid.uuid4().hex}-{{i}}.parquet",
        existing_data_behavior=behavior,
        **cut,
    )


def dataset_read(_: ArrowSide, workload: Workload, url: str) -> int:
    import pyarrow.dataset as ds

    found = ds.dataset(_path(url), filesystem=_s3(), format="parquet", partitioning="hive")
    return found.to_table(_columns(workload), filter=_expression(workload)).num_rows


def wrangler(side: ArrowSide, workload: Workload, url: str, mode: str = "append") -> None:
    import awswrangler as wr

    by = side.by(workload)
    cut = None if by else workload.rows // workload.files
    wr.s3.to_parquet(
        side.pandas(workload),
        path=url,
        dataset=True,
        mode=mode,
        partition_cols=by or None,
        max_rows_by_file=cut,
        compression="zstd",
    )


def wrangler_read(_: ArrowSide, workload: Workload, url: str) -> int:
    import awswrangler as wr

    condition = QUERIES[workload.query][0]
    chosen: Any = None
    if condition and condition[0] == "day":
        chosen = lambda names: names["day"] == str(condition[2])  # noqa: E731
    rows = wr.s3.read_parquet(
        url, dataset=True, columns=_columns(workload), partition_filter=chosen
    )
    return int((rows["id"] < condition[2]).sum()) if condition and not chosen else len(rows)


def delta(side: ArrowSide, workload: Workload, url: str, mode: str = "append") -> None:
    from deltalake import WriterProperties, write_deltalake

    write_deltalake(
        url,
        side.rows(workload),
        mode=mode,
        partition_by=side.by(workload) or None,
        predicate="day >= 0" if mode == "overwrite" else None,
        storage_options=_delta_options(),
        writer_properties=WriterProperties(compression="ZSTD"),
    )


def delta_merge(side: ArrowSide, _: Workload, url: str) -> None:
    from deltalake import DeltaTable, WriterProperties

    (
        DeltaTable(url, storage_options=_delta_options())
        .merge(
            side.source,
            " and ".join(f"t.{key} = s.{key}" for key in made.KEYS),
            source_alias="s",
            target_alias="t",
            writer_properties=WriterProperties(compression="ZSTD"),
        )
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )


def delta_check(_: ArrowSide, workload: Workload, url: str) -> int:
    from deltalake import DeltaTable

    found = DeltaTable(url, storage_options=_delta_options()).to_pyarrow_dataset()
    return made.check(workload, found.to_table())


def delta_read(_: ArrowSide, workload: Workload, url: str) -> int:
    from deltalake import DeltaTable

    found = DeltaTable(url, storage_options=_delta_options()).to_pyarrow_dataset()
    return found.to_table(_columns(workload), filter=_expression(workload)).num_rows


def _delta_options() -> dict[str, str]:
    return {"aws_allow_http": "true", "aws_conditional_put": "etag"}


def iceberg(side: ArrowSide, workload: Workload, url: str) -> None:
    _iceberg_table(side, workload, url).append(side.rows(workload))


def iceberg_replace(side: ArrowSide, workload: Workload, url: str) -> None:
    _iceberg_table(side, workload, url).dynamic_partition_overwrite(side.rows(workload))


def iceberg_merge(side: ArrowSide, _: Workload, url: str) -> None:
    # By the id alone: by several columns it makes a condition of each row, which takes longer.
    side.catalog.load_table(_iceberg_name(url)).upsert(side.source, ["id"])


def iceberg_check(side: ArrowSide, workload: Workload, url: str) -> int:
    found = side.catalog.load_table(_iceberg_name(url)).scan().to_arrow()
    return made.check(workload, found)


def iceberg_read(side: ArrowSide, workload: Workload, url: str) -> int:
    condition, column = QUERIES[workload.query]
    given: dict[str, Any] = {"selected_fields": (column,)} if column else {}
    if condition:
        given["row_filter"] = "{} {} {}".format(*condition)
    return side.catalog.load_table(_iceberg_name(url)).scan(**given).to_arrow().num_rows


def _iceberg_name(url: str) -> str:
    return "bench." + "".join(c if c.isalnum() else "_" for c in _path(url))


def _iceberg_table(side: ArrowSide, workload: Workload, url: str) -> Any:
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.transforms import IdentityTransform

    name = _iceberg_name(url)
    try:
        return side.catalog.load_table(name)
    except NoSuchTableError:
        schema = side.rows(workload).schema
        with side.catalog.create_table_transaction(name, schema, location=url) as creation:
            for column in side.by(workload):
                with creation.update_spec() as spec:
                    spec.add_field(column, IdentityTransform(), column)
        return side.catalog.load_table(name)
