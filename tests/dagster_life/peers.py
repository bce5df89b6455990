"""``python -m dagster_life.peers``: what other I/O managers of Dagster do on an empty day, with
several days in one run, and on a retry after a commit; beside ours, by the same loads."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from support.moto_server import running
from support.wheel import build_wheel, unpack
from tools.environments import DAGSTER_PEERS

from .peer_loads import PEERS

_BUCKET = "peers"
#: By case, what a day of two rows becomes; days 1 to 3.
_WANTED = {
    "an_empty_day": [2, 0, 2],
    "a_range": [5, 5, 5],
    "an_empty_day_in_a_range": [5, 0, 5],
    "rows_of_another_day": [2, 2, 2],
    "a_retry": [2, 5, 2],
    "an_append_retried": [2, 5, 2],
}


def main() -> int:
    """Returns 0 only if ours does what is wanted; the others' are printed as they are."""
    DAGSTER_PEERS.ensure()
    with tempfile.TemporaryDirectory(prefix="dagster-peers-") as made, running() as server:
        folder = Path(made)
        (folder / "wheel").mkdir()
        unpack(build_wheel(folder / "wheel"), folder / "packages")
        server.client().create_bucket(Bucket=_BUCKET)
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": made,
            "PYTHONPATH": str(folder / "packages"),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            **server.environment,
        }
        found = {peer: _loads(peer, folder, variables) for peer in PEERS}
    for case in _WANTED:
        print(f"{case.replace('_', ' ')}; wanted {_WANTED[case]}")
        for peer, came in found.items():
            right = "right" if came[case] == _WANTED[case] else "WRONG"
            refused = isinstance(came[case], str)
            print(f"  {'refused' if refused else right:7} {peer}: {came[case]}")
    ours = found["dagster_zero_rename"]
    refused = {name for name, came in ours.items() if isinstance(came, str)}
    wrong = {name for name in _WANTED if ours[name] != _WANTED[name]}
    return 0 if wrong == refused == {"rows_of_another_day"} else 1


def _loads(peer: str, folder: Path, variables: dict[str, str]) -> dict[str, object]:
    """What one I/O manager's tables hold after each case; or its error, as text."""
    place, result = folder / peer, folder / f"{peer}.json"
    place.mkdir()
    root = f"s3://{_BUCKET}/tables" if peer == "dagster_zero_rename" else str(place)
    program = str(Path(__file__).with_name("peer_loads.py"))
    done = subprocess.run(
        [str(DAGSTER_PEERS.python), program, peer, root, str(result)],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(result.read_text())


if __name__ == "__main__":
    sys.exit(main())
