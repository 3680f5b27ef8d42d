"""Ray, for who has it: a cluster that is there, or one on this machine for as long as a block of code runs."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from glocal.common.errors import RecipeError

# Tell nobody, warn of nothing, and do not stand behind everything else on the machine (Ray's workers are nice by 15).
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_worker_niceness": "0"}


def check_ray() -> None:
    try:
        import ray.data  # noqa: F401
    except ImportError as error:
        raise RecipeError(f"--engine ray needs {error.name}: pip install 'glocal[ray]'", code="needs-ray") from error


@contextmanager
def cluster(address: str | None, workers: int | None = None) -> Iterator[Any]:
    """The module ``ray``, connected to the cluster at an address, or to one of ``workers`` cores that ends here."""
    os.environ.update({name: value for name, value in SETTINGS.items() if name not in os.environ})
    import ray

    if ray.is_initialized():
        yield ray
        return
    alone: dict[str, Any] = {}
    if address is None:
        alone = {"num_cpus": workers, "include_dashboard": False}
        if "RAY_AUTH_TOKEN_PATH" not in os.environ:  # else Ray would leave a token in the user's home
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **alone)
    except Exception as error:  # Ray has no class for it; on a busy machine its parts wait 30 s for each other
        what = str(error).partition(". ")[0] or type(error).__name__
        raise RecipeError(
            f"Ray at {address or 'this machine'} did not start ({what}); try again", code="no-ray"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()
