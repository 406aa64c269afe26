"""botocore reads its descriptions of AWS once for each worker, and not once for each store that a test opens."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import botocore.session
import pytest


@pytest.fixture(scope="session", autouse=True)
def shared_descriptions() -> Iterator[None]:
    """Reading them takes most of the time of opening a store, and nothing changes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", functools.cache(botocore.session.create_loader))
        yield
