"""Writes of a PySpark application, as far as its text tells before it runs.

A hint, not a proof: what is called by another name, in another module or through SQL text that is
put together is not seen here, and is left to the checks in the job and to the tripwires.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

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


def written_formats(source: str) -> tuple[str, ...]:
    """The formats an application's text writes, ``rdd`` and ``hive`` among them, sorted.

    :param source: Python. Empty for what cannot be parsed: Spark will say so itself.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {"hive"} if _STORED_AS.search(node.value) else set()
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found |= _of_call(node, node.func)
    return tuple(sorted(found))


def plain_writes(source: str) -> int:
    """How many writes of ``DataFrameWriter`` an application's text makes; one in a loop counts
    as two, since a UUID that is handed in would be shared by them.

    :param source: Python. 0 for what cannot be parsed.
    """
    try:
        return _count(ast.parse(source), 1)
    except (SyntaxError, ValueError):
        return 0


def partitioned_overwrites(source: str) -> tuple[str | None, ...]:
    """The overwrites by partition columns that an application's text makes by Spark's own writer:
    of each, the ``partitionOverwriteMode`` that it gives itself, in lower case; ``None`` where it
    leaves that to the session.

    :param source: Python. Empty for what cannot be parsed, and without those whose mode is no
        literal.
    """
    try:
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError):
        return ()
    found: list[str | None] = []
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in _ENDS:
            chain = _chain(call)
            if chain and _overwrites(chain) and _partitions(chain):
                own = [value for key, value in _options(chain) if key == _OWN_MODE]
                found += [own[0].lower()] if own else [None]
    return tuple(found)


def uses_this_package(source: str) -> bool:
    """Whether an application's text imports ``zero_rename``, of which ``save()`` is the reason."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return False
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return any(name.partition(".")[0] == "zero_rename" for name in names)


def _count(node: ast.AST, each: int) -> int:
    if isinstance(node, ast.For | ast.While | ast.AsyncFor | ast.comprehension):
        each = 2
    own = 0
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        ends = node.func.attr in _ENDS and _is_write(node.func.value)
        own = each if ends else 0
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
        each = 2
    return own + sum(_count(child, each) for child in ast.iter_child_nodes(node))


def _of_call(call: ast.Call, method: ast.Attribute) -> set[str]:
    if method.attr in _RDD_SAVES:
        return {"rdd"}
    if not _is_write(method.value):
        return set()
    if method.attr in _WRITER_METHODS:
        return {method.attr}
    named = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "format")]
    if method.attr in ("format", "save", "saveAsTable"):
        return {
            name.value.lower()
            for name in named
            if isinstance(name, ast.Constant)
            and isinstance(name.value, str)
            and name.value.lower() in _FORMATS
        }
    return set()


def _is_write(node: ast.expr) -> bool:
    """Whether an expression is a chain that begins with ``….write``."""
    while True:
        if isinstance(node, ast.Attribute):
            if node.attr in ("write", "writeTo", "writeStream"):
                return True
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return False


def _chain(end: ast.Call) -> list[tuple[str, ast.Call]]:
    """The calls of a chain with their methods' names, the last first, if it is one of a
    ``DataFrameWriter``."""
    calls: list[tuple[str, ast.Call]] = []
    node: ast.expr = end
    while not (isinstance(node, ast.Attribute) and node.attr == "write"):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                calls.append((node.func.attr, node))
            node = node.func
        elif isinstance(node, ast.Attribute):
            node = node.value
        else:
            return []
    return calls


def _overwrites(chain: list[tuple[str, ast.Call]]) -> bool:
    said = [word.value for _, call in chain for word in call.keywords if word.arg == "mode"]
    for name, call in chain:
        # parquet(), orc(), json() and csv() take the mode after the path.
        place = {"mode": 0}.get(name, 1 if name in _WRITER_METHODS else len(call.args))
        said += call.args[place : place + 1]
    return any(isinstance(node, ast.Constant) and node.value == "overwrite" for node in said)


def _partitions(chain: list[tuple[str, ast.Call]]) -> bool:
    words = {word.arg for _, call in chain for word in call.keywords}
    return "partitionBy" in words | {name for name, _ in chain}


def _options(chain: list[tuple[str, ast.Call]]) -> Iterator[tuple[str, str]]:
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
