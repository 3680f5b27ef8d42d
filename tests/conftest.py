"""What every test gets: no time limits on a busy machine, and a cache of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("glocal", deadline=None)
settings.load_profile("glocal")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the cache of whoever runs it."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GLOCAL_CACHE", str(folder))
    return folder
