"""What a job is: a program on Spark that first says what it would do, then does it, and reports what it did.

Each job is a module with a `JobKind`, and `catalog.JOBS` lists them all. A `Job` is one run: its options are checked
when it is opened, so that a wrong one fails before Spark works.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from pyspark.sql import SparkSession

Facts: TypeAlias = Mapping[str, str | int | float]
"""Values by name, in the order in which people read them. Numbers have their unit in the name."""


@dataclass(frozen=True)
class Outcome:
    """What a run did. `findings`: lines for people about what it found. `sound`: whether the data that it checked is
    undamaged; a job that checks nothing leaves it."""

    facts: Facts
    findings: tuple[str, ...] = ()
    sound: bool = True


class Job(Protocol):
    """One run. Both raise the errors of `tidelog.storage.errors`, and Spark's."""

    def plan(self) -> Facts:
        """Decide what the run takes, and describe it. It changes nothing."""
        ...

    def run(self) -> Outcome:
        """Do what `plan` decided, and describe what was done. It is called once, after `plan`."""
        ...


@dataclass(frozen=True)
class JobKind:
    """`open` makes a run of the parsed options; it raises `Invalid` for wrong ones."""

    name: str
    summary: str
    add_options: Callable[[ArgumentParser], None]
    open: Callable[[SparkSession, Namespace], Job]
