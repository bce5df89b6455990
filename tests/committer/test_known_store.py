"""What these tests take for moto's facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support.known_store import MOTO
from zero_rename.committer.commit.state.probe import probe
from zero_rename.committer.format.layout import TableRoot, new_write_id


def test_known_facts_of_moto_are_those_that_a_probe_finds(driver: Any, bucket: str) -> None:
    found = driver.run(probe(TableRoot.parse(f"s3://{bucket}/lake/table"), new_write_id))
    assert "Werkzeug" in found.server
    assert replace(found, server="") == MOTO
