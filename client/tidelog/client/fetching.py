"""The threads that fetch for a consumer: they carry out the plans of `Reading`."""

from __future__ import annotations

import logging
import threading

from tidelog.client.arrow_stream import accepting
from tidelog.client.connection import JSON, Request
from tidelog.client.consumer_options import ConsumerOptions
from tidelog.client.fetch_bodies import Undecodable, fetch_answer, fetch_request
from tidelog.client.fetched_parts import FetchPlan
from tidelog.client.leaders import Leaders
from tidelog.client.reading import Reading
from tidelog.storage.errors import LeaderUnknown, NotLeader, TidelogError, Unavailable
from tidelog.storage.runtime import Clock

THREADS_MAX = 8
LONG_POLL_MS = 1_000
SHARED_POLL_MS = 100
"""How long a fetch waits at the broker when there may be more brokers to ask than threads."""
LOOK_AGAIN_S = 1.0
"""How often a waiting thread looks whether the map of leaders is old."""

logger = logging.getLogger("tidelog.client")


class Fetching:
    """Threads start as they are needed. `reading` is guarded by `changed`. `patient`: an outage is no error for the
    program."""

    def __init__(
        self,
        reading: Reading,
        leaders: Leaders,
        changed: threading.Condition,
        options: ConsumerOptions,
        clock: Clock,
        *,
        patient: bool,
    ) -> None:
        self._reading = reading
        self._leaders = leaders
        self._changed = changed
        self._options = options
        self._clock = clock
        self._patient = patient
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closing = False
        self._stored = True

    def wake(self) -> None:
        """Something to fetch may have come. The caller holds the lock."""
        if not self._threads and not self._closing:
            self._start_thread()
        self._changed.notify_all()

    def stop(self) -> None:
        """End the threads; those in a request end with it. The caller holds the lock."""
        self._closing = True
        self._changed.notify_all()

    def join(self, give_up_at: float) -> None:
        """Wait for the threads until `give_up_at`."""
        for thread in self._threads:
            thread.join(max(0.0, give_up_at - self._clock.monotonic()))

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=f"tidelog-fetch-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while not self._closing:
            if self._leaders.due():
                with self._changed:
                    topics = {partition.topic for partition in self._reading.assigned}
                if topics:
                    self._leaders.read(topics)
            plan = self._await_plan()
            if plan is not None:
                self._fetch(plan)

    def _await_plan(self) -> FetchPlan | None:
        """The next fetch, or None after a while without one. One more thread starts if none is left to wait."""
        with self._changed:
            now = self._clock.monotonic()
            plan = self._reading.plan(now, self._leaders.of)
            if plan is None:
                retry_at = self._reading.retry_at(now)
                self._idle += 1
                self._changed.wait(LOOK_AGAIN_S if retry_at is None else min(LOOK_AGAIN_S, retry_at - now))
                self._idle -= 1
                plan = None if self._closing else self._reading.plan(self._clock.monotonic(), self._leaders.of)
            if plan is not None and not self._idle and len(self._threads) < THREADS_MAX and not self._closing:
                self._start_thread()
            return plan

    def _fetch(self, plan: FetchPlan) -> None:
        options = self._options
        wait_ms = LONG_POLL_MS if self._idle else SHARED_POLL_MS
        body = fetch_request(plan, max_bytes=options.max_bytes, max_records=options.max_records, wait_ms=wait_ms)
        headers = {"content-type": JSON, "accept": accepting(options.compression, stored=self._stored)}
        request = Request("POST", "/v1/fetch", headers=headers, body=[memoryview(body)])
        try:
            outcomes, records = fetch_answer(self._leaders.call(plan.leader, request))
        except Undecodable as error:
            self._stored = False  # the broker decodes from now on, or says what is damaged
            self._failed(plan, error, fatal=False)
            return
        except TidelogError as error:
            self._failed(plan, error, fatal=not (self._patient and isinstance(error, Unavailable)))
            return
        if any(isinstance(one.error, NotLeader | LeaderUnknown) for one in outcomes.values()):
            self._leaders.moved(plan.leader)
        with self._changed:
            self._reading.fetched(plan, outcomes, records, self._clock.monotonic())
            self._changed.notify_all()

    def _failed(self, plan: FetchPlan, error: TidelogError, *, fatal: bool) -> None:
        with self._changed:
            if self._closing:
                return
            if not fatal:
                logger.warning("fetching goes on after an error: %s", error)
            self._reading.failed(plan, error, self._clock.monotonic(), fatal=fatal)
            self._changed.notify_all()
