r"""Parses the text of ``--where``.

    expression = conjunction {"or" conjunction}
    conjunction = term {"and" term}
    term       = "not" term | "(" expression ")" | "exists" field | field test | constant operator field
    test       = operator constant | ["not"] "in" "(" constant {"," constant} ")"
               | ["not"] "like" text | ["not"] "matches" text
    operator   = "==" | "=" | "!=" | "<>" | "<" | "<=" | ">" | ">="
    field      = ("value" | "key" | "headers" | "timestamp" | "offset" | "partition") {"." name | "[" text "]"}
    constant   = text | number | "true" | "false" | "null"

Words may be in upper case. A text is in single or double quotes; ``\'`` ``\"`` ``\\`` ``\n`` ``\t`` are escapes, and
any other backslash stands for itself. ``timestamp`` is compared with ms since 1970 or an ISO 8601 text.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NoReturn, cast

from tidelog.services.cli.where.expression import (
    ROOTS,
    All,
    AnyOf,
    Comparison,
    Constant,
    Expression,
    Field,
    Match,
    Membership,
    Not,
    Operator,
    Root,
    Test,
)
from tidelog.services.cli.where.tokens import Token, refuse, tokens_of, unquoted
from tidelog.storage.errors import Invalid

TEXT_CHARACTERS_MAX = 10_000
NESTING_MAX = 100

_OPERATORS: dict[str, Operator] = {
    "=": "==",
    "==": "==",
    "<>": "!=",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_MIRRORED: dict[Operator, Operator] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CONSTANTS: dict[str, Constant] = {"true": True, "false": False, "null": None}


def parsed(text: str) -> Expression:
    """The expression that `text` says. Raises `Invalid` with a mark under the wrong place."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise Invalid(f"--where takes at most {TEXT_CHARACTERS_MAX:,} characters", field="where")
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._place = 0
        self._depth = 0

    def whole(self) -> Expression:
        found = self._expression()
        if self._next.kind != "end":
            self._refuse(self._next, "expected `and`, `or` or the end")
        return found

    def _refuse(self, at: Token, why: str) -> NoReturn:
        refuse(self._text, at.at, why)

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    def _take(self) -> Token:
        token = self._next
        self._place += token.kind != "end"
        return token

    def _takes(self, word: str) -> bool:
        """Take the next token if it is `word`."""
        taken = self._next.says(word)
        self._place += taken
        return taken

    def _need(self, word: str) -> None:
        if not self._takes(word):
            self._refuse(self._next, f"expected `{word}`")

    def _expression(self) -> Expression:
        parts = [self._conjunction()]
        while self._takes("or"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _conjunction(self) -> Expression:
        parts = [self._term()]
        while self._takes("and"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _term(self) -> Expression:
        self._depth += 1
        if self._depth > NESTING_MAX:
            self._refuse(self._next, f"more than {NESTING_MAX} levels of parentheses and `not`")
        found = self._bare_term()
        self._depth -= 1
        return found

    def _bare_term(self) -> Expression:
        if self._takes("not"):
            return Not(self._term())
        if self._takes("("):
            found = self._expression()
            self._need(")")
            return found
        if self._takes("exists"):
            return Comparison(self._field(), "!=", None)
        if self._is_constant(self._next):
            return self._mirrored()
        return self._test(self._field())

    def _mirrored(self) -> Test:
        """``500 <= value.status``"""
        at, constant = self._next, self._constant()
        operator = self._operator()
        field = self._field()
        return self._comparison(field, _MIRRORED.get(operator, operator), constant, at)

    def _test(self, field: Field) -> Expression:
        if self._takes("not"):
            if not any(self._next.says(word) for word in ("in", "like", "matches")):
                self._refuse(self._next, "expected `in`, `like` or `matches` after `not`")
            return Not(self._test(field))
        if self._takes("in"):
            return self._membership(field)
        if self._takes("like"):
            return self._match(field, like=True)
        if self._takes("matches"):
            return self._match(field, like=False)
        operator = self._operator()
        at = self._next
        return self._comparison(field, operator, self._constant(), at)

    def _comparison(self, field: Field, operator: Operator, constant: Constant, at: Token) -> Comparison:
        if operator not in ("==", "!=") and (constant is None or isinstance(constant, bool)):
            self._refuse(at, f"`{at.text}` has no order: compare it by == or !=")
        return Comparison(field, operator, self._fitting(field, constant, at))

    def _membership(self, field: Field) -> Membership:
        self._need("(")
        constants: list[Constant] = []
        while not constants or self._takes(","):
            at = self._next
            constants.append(self._fitting(field, self._constant(), at))
        self._need(")")
        return Membership(field, tuple(constants))

    def _match(self, field: Field, *, like: bool) -> Match:
        at = self._next
        if field.root in ("timestamp", "offset", "partition"):
            self._refuse(at, f"{field.root} is a number: compare it by an operator")
        if at.kind != "text":
            self._refuse(at, "expected a pattern in quotes")
        text = unquoted(self._take().text)
        pattern = _like_pattern(text) if like else text
        self._check_pattern(pattern, at)
        return Match(field, pattern)

    def _check_pattern(self, pattern: str, at: Token) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            pc.match_substring_regex(pa.array([""]), pattern)
        except pa.ArrowException as error:
            self._refuse(at, f"the pattern is no regular expression (RE2): {str(error).splitlines()[0]}")

    def _field(self) -> Field:
        at = self._take()
        if at.kind != "word" or at.text.lower() not in ROOTS:
            self._refuse(at, f"expected a field: {', '.join(ROOTS)}")
        root, path = cast(Root, at.text.lower()), self._path()
        if root == "headers" and len(path) != 1:
            self._refuse(at, "name one header: headers.trace or headers['trace-id']")
        if root not in ("value", "headers") and path:
            self._refuse(at, f"{root} has no fields inside: only value and headers have")
        return Field(root, path)

    def _path(self) -> tuple[str, ...]:
        names: list[str] = []
        while True:
            if self._takes("."):
                at = self._take()
                if at.kind not in ("word", "text", "number"):
                    self._refuse(at, "expected a name after the dot")
                names += [unquoted(at.text)] if at.kind == "text" else at.text.split(".")
            elif self._takes("["):
                at = self._take()
                if at.kind != "text":
                    self._refuse(at, "expected a name in quotes; elements of arrays cannot be addressed")
                names.append(unquoted(at.text))
                self._need("]")
            else:
                return tuple(names)

    def _operator(self) -> Operator:
        at = self._take()
        if at.kind != "operator":
            self._refuse(at, "expected ==, !=, <, <=, >, >=, in, like or matches")
        return _OPERATORS[at.text]

    def _is_constant(self, token: Token) -> bool:
        return token.kind in ("text", "number") or (token.kind == "word" and token.text.lower() in _CONSTANTS)

    def _constant(self) -> Constant:
        at = self._take()
        if not self._is_constant(at):
            hint = ": put a text in quotes" if at.kind == "word" else ""
            self._refuse(at, f"expected a text, a number, true, false or null{hint}")
        if at.kind == "text":
            return unquoted(at.text)
        if at.kind == "word":
            return _CONSTANTS[at.text.lower()]
        return int(at.text) if re.fullmatch(r"-?\d+", at.text) else float(at.text)

    def _fitting(self, field: Field, constant: Constant, at: Token) -> Constant:
        """`constant`, if the field can have such a value; a time becomes ms since 1970."""
        if field.root == "value" or (constant is None and field.root in ("key", "headers")):
            return constant
        if field.root in ("key", "headers"):
            if not isinstance(constant, str):
                self._refuse(at, f"{field.root} is text: put the constant in quotes")
            return constant
        if field.root == "timestamp" and isinstance(constant, str):
            return self._time_ms(constant, at)
        if type(constant) is not int:
            self._refuse(at, f"{field.root} is a whole number" + (" of ms, or a time" * (field.root == "timestamp")))
        return constant

    def _time_ms(self, text: str, at: Token) -> int:
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            self._refuse(at, "expected an ISO 8601 time, as '2026-01-31T12:00:00Z'")
        return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)


def _like_pattern(text: str) -> str:
    """SQL's pattern as a regular expression: ``%`` is any text, ``_`` one character, a backslash escapes both."""
    parts = re.findall(r"\\[%_\\]|%|_|[^%_\\]+|\\", text, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    return rf"(?s)\A{''.join(wild.get(part) or _escaped(part) for part in parts)}\z"


def _escaped(part: str) -> str:
    return re.escape(part[1:] if len(part) == 2 and part[0] == "\\" else part)
