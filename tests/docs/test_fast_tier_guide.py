"""The guide *Write to a fast store first*: its code and its commands do what it says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command_line import invoke
from support.moto_server import S3Server, running
from zero_rename import Table

pytestmark = pytest.mark.memory_s3

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "fast-tier.md"


@pytest.fixture
def fast() -> Iterator[S3Server]:
    with running() as server:
        server.client().create_bucket(Bucket="fast")
        yield server


def test_its_code_and_its_commands(
    fast: S3Server,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    profile = "aws_access_key_id = other\naws_secret_access_key = secret\nregion = us-east-1\n"
    (tmp_path / "config").write_text(f"[profile nvme]\n{profile}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    text = PAGE.read_text("utf-8").replace("s3://bucket/", f"s3://{bucket}/")
    text = text.replace("http://nvme.example:9000", fast.endpoint)
    [code] = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    exec(code, {})
    days = "['day=2026-01-30', 'day=2026-01-31']"
    assert capsys.readouterr().out == f"{days}\n{days} []\n"
    table = Table(f"s3://{bucket}/flights")
    with table.job(replace_partitions=["day=2026-01-31"], mode="replace") as job:
        job.write(table.to_arrow(partitions=["day=2026-01-31"]))
    lines = [shlex.split(it, comments=True)[2:] for it in re.findall(r"^\$ .*$", text, re.M)]
    shown, copied, without, plan = (invoke(*words) for words in lines)
    assert "would copy" in shown.output
    assert (copied.exit_code, "copied" in copied.output) == (0, True)
    assert without.exit_code == 0
    assert table.data_root is None
    assert plan.exit_code == 0, plan.output
    assert "secret" not in "".join(it.output for it in (shown, copied, without, plan))
