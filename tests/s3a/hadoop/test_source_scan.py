"""What an application's text tells of its writes."""

from __future__ import annotations

import pytest

from zero_rename.s3a.hadoop.source_scan import SourceScan


@pytest.mark.parametrize(
    ("source", "formats"),
    [
        ("df.write.parquet(p)", ("parquet",)),
        ("df.write.mode('append').partitionBy('day').orc(p)", ("orc",)),
        ("df.write.format('delta').mode('append').save(p)", ("delta",)),
        ("df.write.save(p, format='csv')", ("csv",)),
        ("df.coalesce(1).write.saveAsTable('t', format='hive')", ("hive",)),
        ("rdd.map(f).saveAsTextFile(p)", ("rdd",)),
        ("spark.sql('CREATE TABLE t (a INT)\\nSTORED AS PARQUET')", ("hive",)),
        ("df.write.parquet(p); rdd.saveAsPickleFile(q)", ("parquet", "rdd")),
        # Reading is not writing.
        ("spark.read.json(p)", ()),
        ("spark.read.format('delta').load(p)", ()),
        ("df.write.format(chosen).save(p)", ()),
        ("df.write.save('parquet-files')", ()),
        ("spark.sql('CREATE TABLE t (a INT) USING parquet')", ()),
        ("this is no Python", ()),
        ("", ()),
    ],
)
def test_formats(source: str, formats: tuple[str, ...]) -> None:
    assert SourceScan.of(source).formats == formats


@pytest.mark.parametrize(
    ("source", "writes"),
    [
        ("df.write.parquet(p)", 1),
        ("df.write.format('orc').mode('append').save(p)", 1),
        ("a.write.parquet(p)\nb.write.insertInto('t')", 2),
        ("for p in paths:\n    df.write.parquet(p)", 2),
        ("[df.write.parquet(p) for p in paths]", 2),
        ("spark.read.parquet(p)", 0),
        ("file.write('text')", 0),
        ("this is no Python", 0),
    ],
)
def test_plain_writes(source: str, writes: int) -> None:
    assert SourceScan.of(source).plain_writes == writes


@pytest.mark.parametrize(
    ("source", "overwrites"),
    [
        ("df.write.mode('overwrite').partitionBy('day').parquet(p)", (None,)),
        ("df.write.partitionBy('day').parquet(p, 'overwrite')", (None,)),
        ("df.write.save(p, mode='overwrite', partitionBy='day')", (None,)),
        (
            "df.write.option('partitionOverwriteMode', 'STATIC').option('a', 1).mode('overwrite')"
            ".partitionBy('day').save(p)",
            ("static",),
        ),
        (
            "df.write.options(partitionOverwriteMode='dynamic').partitionBy('day')"
            ".parquet(p, mode='overwrite')",
            ("dynamic",),
        ),
        ("df.write.mode('overwrite').parquet(p)", ()),
        ("df.write.mode(mode).partitionBy('day').parquet(p)", ()),
        ("df.write.mode('append').partitionBy('day').parquet(p)", ()),
        ("save(df, mode='overwrite', partition_by=['day'])", ()),
        ("this is no Python", ()),
    ],
)
def test_partitioned_overwrites(source: str, overwrites: tuple[str | None, ...]) -> None:
    assert SourceScan.of(source).overwrites == overwrites


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("from zero_rename.spark import save", True),
        ("import zero_rename.spark as zr", True),
        ("import zero_renamed", False),
        ("from .zero_rename import save", True),
        ("this is no Python", False),
    ],
)
def test_uses_this_package(source: str, uses: bool) -> None:
    assert SourceScan.of(source).uses_this_package is uses
