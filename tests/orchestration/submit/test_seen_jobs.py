"""What is seen of services' jobs before they are submitted."""

from __future__ import annotations

import pytest

from zero_rename.committer.errors import InvalidInputError
from zero_rename.orchestration.submit.seen_jobs import seen_by_driver


def test_parameters_whose_quotes_are_not_closed_are_refused_without_their_text() -> None:
    driver = {"sparkSubmitParameters": "--conf spark.ssl.keyPassword='hidden"}
    with pytest.raises(InvalidInputError, match="Close the quotes") as refused:
        seen_by_driver(driver, None, "emr-7.9.0")
    assert "hidden" not in str(refused.value)
