"""``make demo``, with ``COMMITTER=magic`` by one of Hadoop's committers."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from zero_rename import ZeroRenameError
from zero_rename.committer.format.records.success_marker import COMMITTER as NATIVE

from . import hadoop
from .hadoop import check_committer
from .processes import sweep
from .report import RunReport
from .scenario import tell
from .store import store
from .workspace import DemoError, shown, workspace


def main() -> int:
    """Run the demonstration. Returns 0 only if every committed row is the CSV's."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    report, asked = RunReport(), os.environ.get("COMMITTER", "")
    try:
        by_hadoop = check_committer(asked) if asked not in ("", NATIVE) else None
        with workspace() as folders, store(folders.logs) as s3:
            where = "an embedded S3" if s3.embedded else "your S3"
            report.say(f"{where} at {s3.endpoint}, bucket {s3.name}; logs: {shown(folders.logs)}")
            if by_hadoop is None:
                wrong = tell(folders, s3, report)
            else:
                wrong = hadoop.tell(by_hadoop, folders, s3, report)
        return report.verdict(wrong)
    except (DemoError, ZeroRenameError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; nothing is left running.", file=sys.stderr)
        return 130
    finally:
        sweep()


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
