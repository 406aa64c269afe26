"""JSON parsed straight into a typed form (msgspec); every way it can fail is told as a refusal that names the field."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from tidelog.services.http.answers.problems import Unreadable
from tidelog.storage.errors import Invalid
from tidelog.storage.object_store import Body

T = TypeVar("T")
_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)


def parse_typed(decoder: msgspec.json.Decoder[T], body: Body | msgspec.Raw, what: str = "the body") -> T:
    """`body` in the decoder's form. `Unreadable` if it is not JSON, `Invalid` with the field's path if it is JSON of
    another form."""
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
    assert found is not None, "the pattern takes every text"
    path = (found["path"] or "").removeprefix("$").removeprefix(".")
    return Invalid(f"{path or what}: {found['what']}", field=path or None)
