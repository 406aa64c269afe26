"""The recorder records every answer that a client gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from tests.chaos.checker.coverage import KINDS, unrecorded
from tests.chaos.checker.history import History, Outcome, Run
from tests.chaos.checker.history_lines import parse_history
from tests.chaos.load.__main__ import _read_again
from tests.chaos.load.calls import Caller, open_session
from tests.chaos.load.means import Means
from tests.chaos.load.readers import ReplayReader, StreamReader, ask_end, read_once
from tests.chaos.load.recorder import Recorder
from tests.chaos.load.values import Value
from tests.chaos.load.workload import Workload

EMPTY = {"records": [], "next_offset": 0, "high_watermark": 0, "log_start_offset": 0}


class Desk:
    """A service that answers every request with the next of `answers`: a status and a body."""

    def __init__(self, answers: Sequence[tuple[int, object]], path: Path) -> None:
        self._answers = list(answers)
        self._path = path
        self.asked = asyncio.Event()

    @asynccontextmanager
    async def means(self) -> AsyncIterator[Means]:
        """Clients of this service, recorded to `path`."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            with Recorder(self._path) as recorder:
                async with open_session() as session:
                    yield Means(Workload(1, [site.name], {"t": 1}), Caller(session), recorder, asyncio.Event())
        finally:
            await runner.cleanup()

    def history(self) -> History:
        return parse_history(self._path.read_text().splitlines())

    async def _answer(self, request: web.Request) -> web.Response:
        status, body = self._answers.pop(0)
        if not self._answers:
            self.asked.set()
        if isinstance(body, str):
            return web.Response(status=status, text=body, content_type="text/event-stream")
        return web.json_response(body, status=status)


async def test_an_empty_read_is_recorded(tmp_path: Path) -> None:
    desk = Desk([(200, EMPTY)], tmp_path / "history")
    async with desk.means() as means:
        await read_once(means.caller, means.recorder, "r", means.workload.brokers[0], "t", 0, 0)
    (read,) = desk.history().reads
    assert (read.outcome, read.runs, read.offset) == (Outcome.OK, (), 0)


async def test_a_query_for_the_end_is_recorded_also_if_it_fails(tmp_path: Path) -> None:
    desk = Desk([(200, {"offset": 7}), (503, {"code": "not_leader"})], tmp_path / "history")
    async with desk.means() as means:
        for _ in range(2):
            await ask_end(means.caller, means.recorder, "r", means.workload.brokers[0], "t", 0)
    assert [(end.offset, end.outcome, end.code) for end in desk.history().ends] == [
        (7, Outcome.OK, ""),
        (None, Outcome.FAIL, "not_leader"),
    ]


async def test_a_replay_records_the_query_that_fails_before_it(tmp_path: Path) -> None:
    desk = Desk([(503, {"code": "unavailable"})], tmp_path / "history")
    async with desk.means() as means:
        replay = asyncio.create_task(ReplayReader(means, "replay").run())
        await desk.asked.wait()
        means.stopping.set()
        await replay
    (end,) = desk.history().ends
    assert end.code == "unavailable"


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (503, {"code": "leader_unknown"}, "leader_unknown"),
        (200, 'event: problem\ndata: {"code": "not_found"}\n\n', "not_found"),
    ],
)
async def test_a_stream_that_fails_is_recorded(tmp_path: Path, status: int, body: object, code: str) -> None:
    record = f'data: {{"offset": 0, "key": null, "value": "{Value("p", 0).text}"}}\n\n'
    desk = Desk([(200, record), (status, body), (200, "")], tmp_path / "history")
    async with desk.means() as means:
        stream = asyncio.create_task(StreamReader(means, "stream", "t", 0).run())
        await desk.asked.wait()
        means.stopping.set()
        await stream
    records, failure = desk.history().reads[:2]
    assert records.runs == (Run(0, "p", 0, 1),)
    assert (failure.offset, failure.outcome, failure.code) == (1, Outcome.UNKNOWN, code)


async def test_a_second_final_read_that_fails_breaks_the_run(tmp_path: Path) -> None:
    desk = Desk([(503, {"code": "unavailable"})], tmp_path / "history")
    async with desk.means() as means:
        with pytest.raises(RuntimeError, match="second final read of t/0 at 0 failed"):
            await _read_again(means, means.workload.brokers[0], "t", 0)


async def test_an_answer_that_no_fault_excuses_is_reported(tmp_path: Path) -> None:
    desk = Desk([(500, {"code": "internal", "detail": "oh"})], tmp_path / "history")
    async with desk.means() as means:
        await read_once(means.caller, means.recorder, "r", means.workload.brokers[0], "t", 0, 0)
        (told,) = means.recorder.unexpected
    assert "500 internal: oh" in told


def test_a_history_says_which_kinds_of_operations_it_lacks() -> None:
    assert len(list(unrecorded(History()))) == len(KINDS)
    assert "too few empty reads were recorded: 0, at least 3 are needed" in set(unrecorded(History()))
