"""docs/port-from-kafka.md: its program runs, and its tables name calls and options that exist."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from tidelog.client import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    ConsumerOptions,
    Producer,
    ProducerOptions,
)

TEXT = (Path(__file__).parents[2] / "docs" / "port-from-kafka.md").read_text()
PLAIN, ASYNC = {"p": Producer, "c": Consumer}, {"p": AsyncProducer, "c": AsyncConsumer}


def ported_cells() -> list[tuple[bool, str]]:
    """The right cell of each row, and whether its table is that of aiokafka."""
    cells, of_aiokafka = [], False
    for line in TEXT.splitlines():
        if line.startswith("| ") and line.count("|") == 3:
            left, right = line.strip("|").split("|")
            of_aiokafka = left.strip() == "aiokafka" if right.strip() == "Tidelog" else of_aiokafka
            cells.append((of_aiokafka, right))
    return cells


def options() -> set[str]:
    fields = {field.name for kind in (ProducerOptions, ConsumerOptions) for field in dataclasses.fields(kind)}
    calls = (Producer, Consumer, Consumer.subscribe, AsyncConsumer.subscribe)
    return fields | {name for call in calls for name in inspect.signature(call).parameters}


def test_the_ported_program_runs(broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    ported = re.findall(r"```python\n(from tidelog.*?)```", TEXT, re.DOTALL)
    (program,) = ported
    name = "ported"
    exec(program.replace("http://b1:8080,http://b2:8080", broker).replace('"web"', f'"{name}"'), {})
    assert sorted(line.split()[-1] for line in capsys.readouterr().out.splitlines()) == ["b'/'", "b'/cart'"]


def test_every_call_of_the_tables_exists() -> None:
    called = [
        (of_aiokafka, *found) for of_aiokafka, cell in ported_cells() for found in re.findall(r"\b([cp])\.(\w+)", cell)
    ]
    assert len(called) > 20
    kinds = {False: PLAIN, True: ASYNC}
    assert [one for one in called if not hasattr(kinds[one[0]][one[1]], one[2])] == []


def test_every_option_of_the_tables_exists() -> None:
    cells = " ".join(cell for _, cell in ported_cells())
    named = set(re.findall(r"\b([a-z_]+)=", cells)) | set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", cells))
    assert len(named) > 8
    assert named - options() == set()
