"""``make demo``."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from zero_rename import ZeroRenameError

from .processes import sweep
from .report import RunReport
from .scenario import tell
from .store import store
from .workspace import DemoError, shown, workspace


def main() -> int:
    """Run the demonstration. Returns 0 only if every committed row is the CSV's."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    report = RunReport()
    try:
        with workspace() as folders, store(folders.logs) as s3:
            where = "an embedded S3" if s3.embedded else "your S3"
            report.say(f"{where} at {s3.endpoint}, bucket {s3.name}; logs: {shown(folders.logs)}")
            wrong = tell(folders, s3, report)
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
