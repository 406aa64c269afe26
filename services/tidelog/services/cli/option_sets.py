"""Options of a command as one value.

A command with many options declares them as the fields of a frozen dataclass, an `OptionSet`, and takes one of these:

    @dataclass(frozen=True)
    class ListOptions(OptionSet):
        prefix: Annotated[str, typer.Option("--prefix")] = ""

    def list_topics(options: ListOptions) -> None: ...

`flattened` turns it into a function that takes one parameter for each field, which Typer understands. Type hints of an
option set are evaluated, so its module imports the types of its fields at run time.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any

Command = Callable[..., None]


class OptionSet:
    """The base of dataclasses whose fields are options."""


def flattened(command: Command) -> Command:
    """`command` with a parameter for each field of its option sets."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())
    sets = {one.name: one.annotation for one in own if _is_set(one.annotation)}

    def run(**given: Any) -> None:
        values = {
            name: options(**{field: given.pop(field) for field in _names(options)}) for name, options in sets.items()
        }
        command(**values, **given)

    parameters = [flat for one in own for flat in (_fields(one.annotation) if one.name in sets else (one,))]
    return as_command(run, command, parameters)


def as_command(run: Command, command: Command, parameters: Iterable[inspect.Parameter]) -> Command:
    """`run`, with the name and help of `command`. Typer passes it `parameters` by name."""
    by_name = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]  # Typer reads it
    run.__annotations__ = {one.name: one.annotation for one in by_name}
    return run


def option_parameter(name: str, annotation: object, default: object = None) -> inspect.Parameter:
    """A parameter of a command."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _is_set(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, OptionSet)


def _names(options: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(options)]


def _fields(options: Any) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(options, include_extras=True)
    return [option_parameter(one.name, hints[one.name], one.default) for one in dataclasses.fields(options)]
