"""A consumer of a group in a process of its own, for tests that kill it. It prints each record's partition and offset.

python -m tests.client.group_worker BROKERS TOPIC GROUP
"""

from __future__ import annotations

import sys

from tidelog.client import Consumer, ConsumerOptions

OPTIONS = ConsumerOptions(session_timeout_s=2.0, auto_commit_interval_s=0.2)


def main() -> None:
    brokers, topic, group = sys.argv[1:]
    with Consumer(brokers, topic, group=group, options=OPTIONS) as consumer:
        for record in consumer:
            sys.stdout.write(f"{record.partition} {record.offset}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
