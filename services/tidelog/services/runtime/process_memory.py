"""Arrow as a broker wants it: with little memory.

Arrow's own allocator, mimalloc, keeps what one thread made and another freed until the first needs it again, which for
a thread of the archiver may be a minute away. jemalloc gives it back within a second and takes as much processor time:
at full load the broker's peak was a fifth lower.

pyarrow loads pandas, where that is installed, the first time it is given values, to see whether they are of pandas:
30 MiB and a third of a second at start, for nothing in a broker.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

POOL_VARIABLE = "ARROW_DEFAULT_MEMORY_POOL"
POOL = "jemalloc"


def choose_pool(environ: MutableMapping[str, str] = os.environ, platform: str = sys.platform) -> None:
    """jemalloc, unless the user has chosen, or Arrow's packages for the platform do not have it. To be called before
    pyarrow is loaded."""
    if platform in ("linux", "darwin"):
        environ.setdefault(POOL_VARIABLE, POOL)


def leave_out_pandas() -> None:
    """Have pyarrow, which asks once, find no pandas. For everybody else it is there as before."""
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("a broker has no use for pandas", name=fullname)
