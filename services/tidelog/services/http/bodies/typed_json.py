"""Parses JSON into a msgspec type. Each way to fail is a refusal that names the field."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from tidelog.storage.errors import Invalid
from tidelog.storage.object_store import Body
from tidelog.wire.errors import Unreadable

T = TypeVar("T")
_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)


def parse_typed(decoder: msgspec.json.Decoder[T], body: Body | msgspec.Raw, what: str = "the body") -> T:
    """Decode `body`. Raises `Unreadable` if it is not JSON, `Invalid` with the path of the field if its JSON does not
    match the type. `what` names the input in messages."""
    if not body:
        raise Unreadable(f"{what} is empty: send JSON")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _misfit(str(error), what) from None
    except RecursionError:
        raise Unreadable(f"{what} is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise Unreadable(f"{what} is not UTF-8: {error.reason}") from None
    except msgspec.DecodeError as error:
        raise Unreadable(f"{what} is not JSON: {error}") from None


def _misfit(message: str, what: str) -> Invalid:
    found = _MESSAGE.fullmatch(message)
    assert found is not None, "the pattern matches every text"
    path = (found["path"] or "").removeprefix("$").removeprefix(".")
    return Invalid(f"{path or what}: {found['what']}", field=path or None)
