"""One broker for the tests of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog

Tidelog = Callable[..., "CompletedProcess[bytes]"]


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the broker's log."""
    return tmp_path_factory.mktemp("cli") / "data"


@pytest.fixture(scope="session")
def broker(store: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(store.parent, {"store": f"file:{store}"})
    process.start()
    yield process
    process.stop()


@pytest.fixture
def tidelog(broker: BrokerProcess) -> Tidelog:
    """Runs the command line with the broker: ``tidelog("topic", "list", stdin=b"")``."""

    def run(
        *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> CompletedProcess[bytes]:
        return run_tidelog(arguments, broker=broker.url, stdin=stdin, environment=environment)

    return run
