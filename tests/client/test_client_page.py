"""The examples of ``docs/client.md`` run as written, one after the other."""

import re
from pathlib import Path

from tidelog.client import Admin

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


def test_the_examples_of_the_page_run(broker: str) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) >= 6
    names: dict[str, object] = {"BROKER": broker}
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)
    with Admin(broker) as admin:
        assert admin.topic("web").records == 10
