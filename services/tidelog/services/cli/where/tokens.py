"""Cuts the text of ``--where`` into tokens, and refuses a text with a mark under the wrong place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from tidelog.storage.errors import Invalid

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w]))
      | (?P<operator>==|!=|<>|<=|>=|=|<|>)
      | (?P<mark>[()\[\],.])
      | (?P<word>[\w$@][\w$@-]*)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(['\"\\nt])")
_ESCAPES = {"n": "\n", "t": "\t"}


@dataclass(frozen=True)
class Token:
    """A word of the text. `kind` is the name of its group in `_TOKEN`, or ``end``."""

    kind: str
    text: str
    at: int

    def says(self, word: str) -> bool:
        return self.kind in ("word", "mark") and self.text.lower() == word


def tokens_of(text: str) -> list[Token]:
    """The tokens, and one of kind ``end``. Raises `Invalid`."""
    tokens, place = [], 0
    end = len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if not found or not found.lastgroup:
            start = len(text) - len(text[place:].lstrip())
            refuse(text, start, "the text is not closed" if text[start] in "'\"" else "unexpected character")
        tokens.append(Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup)))
        place = found.end()
    return [*tokens, Token("end", "", end)]


def unquoted(text: str) -> str:
    """The text between quotes, without escapes."""
    return _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1])


def refuse(text: str, at: int, why: str) -> NoReturn:
    """Raise `Invalid`, with a mark under the character `at` of `text`."""
    line = text.replace("\n", " ").replace("\t", " ")
    raise Invalid(f"--where: {why}\n  {line}\n  {' ' * at}^", field="where")
