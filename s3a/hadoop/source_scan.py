"""Writes of a PySpark application, as far as its text tells before it runs.

A hint, not a proof: what is called by another name, in another module or through SQL text that is
put together is not seen here, and is left to the checks in the job and to the tripwires.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

#: ``RDD`` methods that save through the old MapReduce API, which no factory reaches.
_RDD_SAVES = {
    "saveAsTextFile",
    "saveAsSequenceFile",
    "saveAsHadoopFile",
    "saveAsHadoopDataset",
    "saveAsPickleFile",
}
_WRITER_METHODS = {"parquet", "orc", "csv", "json", "text"}
_ENDS = {*_WRITER_METHODS, "save", "saveAsTable", "insertInto"}
_FORMATS = {*_WRITER_METHODS, "avro", "delta", "iceberg", "hudi", "hive", "zero_rename"}
_OWN_MODE = "partitionoverwritemode"
_STORED_AS = re.compile(r"\bCREATE\b.+?\bTABLE\b.+?\bSTORED\s+AS\b", re.IGNORECASE | re.DOTALL)
_LOOPS = ast.For | ast.While | ast.AsyncFor | ast.ListComp | ast.SetComp | ast.DictComp
_Calls = list[tuple[str, ast.Call]]


@dataclass(frozen=True)
class SourceScan:
    """What an application's text tells. Of a text that cannot be parsed, nothing: Spark will say
    so itself.

    :param formats: those it writes, ``rdd`` and ``hive`` among them, sorted.
    :param plain_writes: how many writes of ``DataFrameWriter`` it makes; one in a loop counts as
        two, since a UUID that is handed in would be shared by them.
    :param overwrites: those by partition columns that it makes by Spark's own writer: of each, the
        ``partitionOverwriteMode`` that it gives itself, in lower case; ``None`` where it leaves
        that to the session. Without those whose mode is no literal.
    :param uses_this_package: it imports ``zero_rename``, of which ``save()`` is the reason.
    """

    formats: tuple[str, ...] = ()
    plain_writes: int = 0
    overwrites: tuple[str | None, ...] = ()
    uses_this_package: bool = False

    @staticmethod
    def of(text: str) -> SourceScan:
        """:param text: Python."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return SourceScan()
        nodes = list(ast.walk(tree))
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        formats = {name for call in calls for name in _written_by(call)}
        texts = [node.value for node in nodes if isinstance(node, ast.Constant)]
        if any(isinstance(text, str) and _STORED_AS.search(text) for text in texts):
            formats.add("hive")
        overwrites = tuple(mode for call in calls for mode in _overwrites(call))
        uses = any(name.partition(".")[0] == "zero_rename" for name in _imported(nodes))
        return SourceScan(tuple(sorted(formats)), _count(tree, 1), overwrites, uses)


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _count(node: ast.AST, each: int) -> int:
    each = 2 if isinstance(node, _LOOPS | ast.GeneratorExp) else each
    own = 0
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        ends = node.func.attr in _ENDS and bool(_chain(node.func.value)[0])
        own = each if ends else 0
    return own + sum(_count(child, each) for child in ast.iter_child_nodes(node))


def _chain(node: ast.expr) -> tuple[str, _Calls]:
    """The word with which a writer's chain of calls begins, ``""`` where it is none, and the calls
    by their methods' names, the last first."""
    calls: _Calls = []
    while isinstance(node, ast.Attribute | ast.Call):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                calls.append((node.func.attr, node))
            node = node.func
        elif node.attr in ("write", "writeTo", "writeStream"):
            return node.attr, calls
        else:
            node = node.value
    return "", []


def _written_by(call: ast.Call) -> set[str]:
    """The formats that one call of a chain names."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method in _RDD_SAVES:
        return {"rdd"}
    if not _chain(call)[0]:
        return set()
    if method in _WRITER_METHODS:
        return {method}
    if method not in ("format", "save", "saveAsTable"):
        return set()
    named = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "format")]
    literals = {str(node.value).lower() for node in named if isinstance(node, ast.Constant)}
    return literals & _FORMATS


def _overwrites(call: ast.Call) -> Iterator[str | None]:
    """The mode of partition overwrite of a chain that ends with this call, if it is one."""
    begins, chain = _chain(call)
    if begins != "write" or not chain or chain[0][0] not in _ENDS:
        return
    words = {word.arg for _, call in chain for word in call.keywords}
    if "partitionBy" in words | {name for name, _ in chain} and _replaces(chain):
        own = [value for key, value in _options(chain) if key == _OWN_MODE]
        yield own[0].lower() if own else None


def _replaces(chain: _Calls) -> bool:
    said = [word.value for _, call in chain for word in call.keywords if word.arg == "mode"]
    for name, call in chain:
        # parquet(), orc(), json() and csv() take the mode after the path.
        place = {"mode": 0}.get(name, 1 if name in _WRITER_METHODS else len(call.args))
        said += call.args[place : place + 1]
    return any(isinstance(node, ast.Constant) and node.value == "overwrite" for node in said)


def _options(chain: _Calls) -> Iterator[tuple[str, str]]:
    """The literal options that a chain sets, by their names in lower case."""
    for name, call in chain:
        if name not in ("option", "options"):
            continue
        pairs = [(word.arg or "", word.value) for word in call.keywords]
        if len(call.args) == 2 and isinstance(call.args[0], ast.Constant):
            pairs.append((str(call.args[0].value), call.args[1]))
        for key, value in pairs:
            if isinstance(value, ast.Constant):
                yield key.lower(), str(value.value)
