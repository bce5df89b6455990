"""A process in which peers run, warm: ``python -m bench.host spark|spark-4.1|arrow|python``.

It is told what to do by lines of JSON on its standard input, and answers on its standard output;
what libraries print goes to the standard error.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def main(kind: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # Not before: Spark's gateway and the workers inherit the standard output.
    from bench.peers import BY_NAME
    from bench.workloads import Workload

    with tempfile.TemporaryDirectory(prefix="zero-rename-bench-") as folder:
        side = _side(kind, Path(folder))
        print(json.dumps({"ready": True}), file=answers)
        for line in sys.stdin:
            asked = json.loads(line)
            workload = Workload(**asked["workload"])
            act = BY_NAME[asked["peer"]].verbs.get(asked["verb"])
            try:
                if act is None:
                    side.prepare(workload)
                    answer: dict[str, Any] = {}
                else:
                    began = time.perf_counter()
                    rows = act(side, workload, asked["url"])
                    answer = {"seconds": time.perf_counter() - began, "rows": rows}
            except Exception as error:  # Whatever a peer's library raises: its row says so.
                said = " ".join(f"{type(error).__name__}: {error}".split())
                answer = {"error": said[:300]}
            print(json.dumps(answer), file=answers)
        side.close()


def _side(kind: str, folder: Path) -> Any:
    if kind.startswith("spark"):
        from bench.spark_peers import SparkSide

        return SparkSide(folder)
    from bench.arrow_peers import ArrowSide

    return ArrowSide()


if __name__ == "__main__":
    main(sys.argv[1])
