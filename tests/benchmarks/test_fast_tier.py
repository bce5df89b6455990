"""``make fast-tier`` without its clock: each way is what it is called, and leaves the same rows."""

from __future__ import annotations

import fast_tier
import pytest
from fast_tier import COPIED, STAGES, Pipeline, measured, source

from support.moto_server import S3Server, running


def test_the_ways_are_what_they_are_called(
    s3_env: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = source(COPIED, 0)
    kept: dict[str, int] = {}
    with running() as quick:
        quick.client().create_bucket(Bucket="fast")
        s3_env.client().create_bucket(Bucket="lake")
        root = f"s3://fast/lake?endpoint={quick.endpoint}"
        places = {"durable": None, "fast": root, "lost": root}
        lines = {
            name: Pipeline(s3_env.client(), name, rows, place) for name, place in places.items()
        }
        for it in lines.values():
            it.begin()
        checkpoint = Pipeline.checkpoint

        def counted(self: Pipeline) -> None:
            for name in STAGES:
                kept[name] = len(self.table(name).not_durable())
            checkpoint(self)

        monkeypatch.setattr(fast_tier.Pipeline, "checkpoint", counted)
        found = measured(lines["durable"], lines["fast"], lines["lost"], 1)
        assert kept == dict.fromkeys(STAGES, COPIED)
        assert len(found) == 4
        assert lines["fast"].table(STAGES[-1]).not_durable() == []
        for name in STAGES:
            assert lines["lost"].table(name).not_durable() == []
            for line in lines.values():
                assert line.table(name).to_arrow().sort_by("x") == rows.sort_by("x")
