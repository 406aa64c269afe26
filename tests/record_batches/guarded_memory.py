"""Memory that ends, or begins, at a page which cannot be read or written: an access beyond it kills the process."""

from __future__ import annotations

import ctypes
import mmap
from ctypes import c_int, c_size_t, c_void_p

PAGE = mmap.PAGESIZE
_PROT_NONE = 0

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (c_void_p, c_size_t, c_int)


class GuardedMemory:
    """Room for `bytes_max`, between two guard pages. Each `place` uses the same room again."""

    def __init__(self, bytes_max: int) -> None:
        self._room = -(-bytes_max // PAGE) * PAGE
        self._map = mmap.mmap(-1, self._room + 2 * PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._start, self._end = address + PAGE, address + PAGE + self._room
        for guard in (address, self._end):
            if _LIBC.mprotect(guard, PAGE, _PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")

    def room(self, size: int, *, at_end: bool) -> int:
        """The address of `size` zero bytes: up to the guard page behind them, or from the one before them on."""
        address = self._address(size, at_end)
        ctypes.memset(address, 0, size)
        return address

    def place(self, data: bytes, *, at_end: bool) -> int:
        """The address of a copy of `data`, placed in the same way."""
        address = self._address(len(data), at_end)
        ctypes.memmove(address, data, len(data))
        return address

    def _address(self, size: int, at_end: bool) -> int:
        assert size <= self._room, size
        return self._end - size if at_end else self._start
