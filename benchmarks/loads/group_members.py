"""Members of consumer groups that poll and commit until SIGTERM, while brokers and other members die.

A member stays with a broker while it answers; after any answer except 200, or a cut connection, it sends the same
request to the next broker. The last line is a list of the calls as JSON; times are Unix seconds.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any

from benchmarks.loads.http_socket import HttpSocket, post

PAUSE_S = 0.02
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class GroupCall:
    """One call of a member with all its attempts. `partitions`: how many it had after it. `refused`: how many attempts
    failed."""

    group: str
    member: int
    commits: bool
    began_s: float
    answered_s: float
    epoch: int
    partitions: int
    refused: int

    @classmethod
    def all_from(cls, output: str) -> list[GroupCall]:
        """Parse the calls in the output of this program."""
        return [cls(**one) for one in json.loads(output.strip().splitlines()[-1])]


class Member:
    def __init__(self, options: argparse.Namespace, group: str, number: int) -> None:
        self._ports = cycle([*options.ports[number % len(options.ports) :], *options.ports])
        self._link: HttpSocket | None = None
        self._group, self._number, self._topic = group, number, options.topic
        self._join = {"topics": [options.topic], "session_timeout_ms": options.session_ms}
        self._wait_ms: int = options.wait_ms
        self._answer: dict[str, Any] = {}
        self.calls: list[GroupCall] = []

    def run(self, ending: threading.Event) -> None:
        while not ending.is_set():
            self._poll()
            if self._answer["assignment"]:
                self._commit()
            time.sleep(PAUSE_S)

    def _poll(self) -> None:
        given = {name: self._answer[name] for name in ("member_id", "member_epoch", "offsets") if name in self._answer}
        began_s = time.time()
        self._answer, refused = self._called("poll", {**(given or self._join), "wait_ms": self._wait_ms})
        self._note(began_s, refused, commits=False)

    def _commit(self) -> None:
        first = self._answer["assignment"][0]
        offset = {"topic": self._topic, "partition": first["partitions"][0], "offset": 0}
        member = {name: self._answer[name] for name in ("member_id", "member_epoch")}
        began_s = time.time()
        _, refused = self._called("commit", {"offsets": [offset], **member})
        self._note(began_s, refused, commits=True)

    def _note(self, began_s: float, refused: int, *, commits: bool) -> None:
        partitions = sum(len(part["partitions"]) for part in self._answer["assignment"])
        epoch = self._answer["member_epoch"]
        self.calls.append(
            GroupCall(self._group, self._number, commits, began_s, time.time(), epoch, partitions, refused)
        )

    def _called(self, call: str, body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """The answer, and how often a broker refused before. A commit from an outdated epoch counts as answered: the
        next poll brings the new one."""
        request, refused = post(f"/v1/groups/{self._group}/{call}", "application/json", json.dumps(body).encode()), 0
        while True:
            try:
                self._link = self._link or HttpSocket(next(self._ports), TIMEOUT_S)
                answer = self._link.exchange(request)
            except (OSError, ValueError, IndexError):  # the last two: the answer was cut off
                self._link = None
            else:
                if answer.status in (200, 204, 409):
                    return (json.loads(answer.body) if answer.status == 200 else {}), refused
                self._link.close()
                self._link = None
            refused += 1
            time.sleep(PAUSE_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ports", type=int, nargs="+", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--groups", nargs="+", required=True)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--session-ms", type=int, default=45_000)
    parser.add_argument("--wait-ms", type=int, default=200)
    options = parser.parse_args()
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    members = [Member(options, group, number) for group in options.groups for number in range(options.members)]
    threads = [threading.Thread(target=member.run, args=(ending,), daemon=True) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps([asdict(call) for member in members for call in member.calls]))


if __name__ == "__main__":
    main()
