"""Clients that write and read one record after another until SIGTERM, while brokers fail and restart.

There is one writer and one reader for each partition. A client stays with a broker while it answers. After any answer
except 200, or a cut connection, it sends the same request to the next broker. Writers number their records
(`Tidelog-Sequence`), so a record that was sent twice is in the log once. The last line is a list of the calls as JSON;
times are Unix seconds.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from dataclasses import asdict, dataclass
from itertools import cycle

from benchmarks.loads.http_socket import Answer, HttpSocket, get

PAUSE_S = 0.02
WAIT_MS = 500
TIMEOUT_S = 30.0
RECORD = json.dumps({"records": [{"value": "one of the steady clients' records"}]}).encode()


@dataclass(frozen=True)
class Call:
    """One request of a client with all its attempts. `failed_s`: when the first attempt failed, 0 if none did.
    `failures`: the cause of each failed attempt. `leader`: the address in the answer."""

    writes: bool
    partition: int
    began_s: float
    answered_s: float
    failed_s: float
    failures: tuple[str, ...]
    leader: str

    @property
    def cured_s(self) -> float:
        """Seconds from the first failure to the answer."""
        return self.answered_s - self.failed_s if self.failures else 0.0

    @classmethod
    def all_from(cls, output: str) -> list[Call]:
        """Parse the calls in the output of this program."""
        return [cls(**one) for one in json.loads(output.strip().splitlines()[-1])]


class Client:
    """`first`: the index of the port that it asks first."""

    def __init__(self, ports: list[int], first: int, topic: str, partition: int, *, writes: bool) -> None:
        self._ports = cycle([*ports[first:], *ports[:first]])
        self._link: HttpSocket | None = None
        self._path = f"/v1/topics/{topic}/partitions/{partition}/records"
        self._partition, self._writes = partition, writes
        self._at = 0
        self.calls: list[Call] = []

    def run(self, ending: threading.Event) -> None:
        while not ending.is_set():
            self.calls.append(self._call())
            time.sleep(PAUSE_S)

    def _call(self) -> Call:
        began, failed, failures = time.time(), 0.0, []
        while isinstance(answer := self._try(), str):
            failed = failed or time.time()
            failures.append(answer)
            time.sleep(PAUSE_S)
        self._at = self._at + 1 if self._writes else int(answer.headers[b"tidelog-next-offset"])
        leader = answer.headers.get(b"tidelog-leader", b"").decode()
        return Call(self._writes, self._partition, began, time.time(), failed, tuple(failures), leader)

    def _try(self) -> Answer | str:
        """Return an answer of 200, or the cause of the failure. After a failure, move to the next broker."""
        try:
            self._link = self._link or HttpSocket(next(self._ports), TIMEOUT_S)
            answer = self._link.exchange(self._request())
        except (OSError, ValueError, IndexError) as error:  # the last two: the answer was cut off
            return self._leave(repr(error))
        if answer.status == 200:
            return answer
        return self._leave(f"{answer.status} {answer.body[:200]!r}")

    def _leave(self, why: str) -> str:
        if self._link is not None:
            self._link.close()
            self._link = None
        return why

    def _request(self) -> bytes:
        if not self._writes:
            return get(f"{self._path}?offset={self._at}&wait_ms={WAIT_MS}", "application/json")
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Tidelog-Producer-Id: steady-{self._partition}\r\nTidelog-Producer-Epoch: 0\r\n"
            f"Tidelog-Sequence: {self._at}\r\nContent-Length: {len(RECORD)}\r\n\r\n"
        )
        return head.encode() + RECORD


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ports", type=int, nargs="+", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    options = parser.parse_args()
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    clients = [
        Client(options.ports, partition % len(options.ports), options.topic, partition, writes=writes)
        for partition in range(options.partitions)
        for writes in (True, False)
    ]
    threads = [threading.Thread(target=client.run, args=(ending,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps([asdict(call) for client in clients for call in client.calls]))


if __name__ == "__main__":
    main()
