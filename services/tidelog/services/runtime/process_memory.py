"""Settings of Arrow and malloc that keep the memory of a broker or compactor small.

- **Arrow's pool.** mimalloc, Arrow's default, keeps memory that one thread allocated and another freed until the first
  thread allocates again, which for a thread of the archiver may take a minute. jemalloc returns it within a second for
  the same processor time: at full load the peak of a broker was a fifth lower.
- **No pandas.** pyarrow imports pandas, if it is installed, when it first gets values. That costs 30 MiB and a third of
  a second at start.
- **glibc's arenas.** glibc gives threads up to eight arenas per processor, and each keeps what was freed in it. One
  thread makes a broker's bodies and objects and another drops them, so this adds up: two arenas instead of sixteen took
  about 40 MiB off the peak at full load, with the same throughput.
- **glibc's large blocks.** glibc raises the size from which it returns blocks at once to the largest block freed,
  up to 32 MiB. Below that size an object read from the store would leave a hole in the heap.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import MutableMapping, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

ARENAS_MAX = 2
LARGE_BYTES = 2 << 20
FREE_BYTES_MAX = 16 << 20
"""glibc returns more free memory than this at the end of a heap."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # glibc's malloc.h


def bound_memory() -> None:
    """Apply all of them. Call it before pyarrow is imported and before threads start."""
    choose_pool()
    _bound_malloc()
    _leave_out_pandas()


def choose_pool(environ: MutableMapping[str, str] = os.environ, platform: str = sys.platform) -> None:
    """Choose jemalloc, unless the user has chosen a pool or Arrow's packages for the platform do not have it."""
    if platform in ("linux", "darwin"):
        environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")


def _bound_malloc() -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, ARENAS_MAX)
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, FREE_BYTES_MAX)


def _leave_out_pandas() -> None:
    """Let pyarrow find no pandas. It looks once; other modules can import pandas afterwards."""
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
            raise ModuleNotFoundError("pyarrow must not load pandas here", name=fullname)
