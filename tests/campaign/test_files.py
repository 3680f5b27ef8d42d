"""Every kind of file, mutated: refused with a code, or read with every number finite; never anything else."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from campaign.fuzz import run
from campaign.kinds import KINDS
from campaign.results import keep
from campaign.serving_kinds import SERVED

pytestmark = pytest.mark.campaign
CASES = int(os.environ.get("GLOCAL_CAMPAIGN_CASES", "300"))
SEED = int(os.environ.get("GLOCAL_CAMPAIGN_SEED", "1"))


@pytest.mark.parametrize("kind", [*KINDS, *SERVED], ids=lambda kind: re.sub(r"[^a-z]+", "-", kind).strip("-"))
def test_mutated_files(kind: str, tmp_path: Path) -> None:
    count = run(kind, CASES, SEED, tmp_path / "home")
    keep("files", kind, count.to_json())
    assert count.tried == CASES
    assert not count.wrong, count.wrong
    # Recipes name data that are not there and are never read to their end; of any other kind some must be.
    assert kind == "recipe" or count.outcomes["read"]
