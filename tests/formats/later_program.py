"""A program of a later version, as this one would meet its objects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.storage.formats import Format


@contextmanager
def later(form: Format) -> Iterator[None]:
    """A later program, which has one more version of `form`."""
    object.__setattr__(form, "newest", form.newest + 1)
    try:
        yield
    finally:
        object.__setattr__(form, "newest", form.newest - 1)
