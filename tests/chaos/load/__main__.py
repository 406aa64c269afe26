"""``python -m tests.chaos.load WORKLOAD HISTORY``: the clients, in their own process.

It creates the topics, prints ``ready``, and works until a command on standard input:

    status     prints a line of JSON: when the last acknowledged append to each partition began, and counts
    stop       ends running operations, reads every partition to its end at one broker and again at another, writes
               everything down, answers like `status`, and exits

The end of standard input means `stop` without the final read: the harness is gone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path

import uvloop
from tests.chaos.checker.history import Acks
from tests.chaos.load.calls import OUT_OF_RANGE, Caller, open_session
from tests.chaos.load.group_members import CallingMember, PollingMember, read_committed
from tests.chaos.load.kafka_members import AiokafkaMember, LibrdkafkaMember
from tests.chaos.load.kafka_producers import AiokafkaProducer, LibrdkafkaProducer
from tests.chaos.load.means import Client, Means
from tests.chaos.load.producers import (
    FastProducer,
    PlainProducer,
    Rival,
    SequencedProducer,
    SpreadingProducer,
)
from tests.chaos.load.readers import ReplayReader, StreamReader, TailReader, read_finally, read_once
from tests.chaos.load.recorder import Recorder
from tests.chaos.load.shipped_clients import ShippedConsumer, ShippedProducer
from tests.chaos.load.topic_clients import (
    JSON_BODY,
    Appender,
    Grower,
    Overwriter,
    Remaker,
    Trimmer,
)
from tests.chaos.load.topics import ARROW, EXPIRING, SHIPPED, SPECIAL
from tests.chaos.load.value_client import Sending
from tests.chaos.load.workload import CONTENDED, MIXED, ORDERED, Chance, Workload, parse_workload

RIVALS = 3
FOLLOWED = 2
"""Partitions of a topic that a client follows over HTTP. Members that are clients of Kafka follow all."""
REPLAYERS = 2
MEMBERS = 3
CALLING_GROUP, POLLING_GROUP = "calling", "polling"
KIP_848_GROUP, CLASSIC_GROUP = "kip-848", "classic"
LAST_BATCHES_S_MAX = 90.0


async def main(workload: Workload, history: Path) -> None:
    """Run to the end."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it tells every connection that a fault refuses
    with Recorder(history) as recorder:
        async with open_session() as session:
            caller = Caller(session)
            await _create_all(caller, recorder, workload)
            means = Means(workload, caller, recorder, asyncio.Event())
            tasks = [asyncio.create_task(client()) for client in _clients(means)]
            failing = asyncio.gather(*tasks)
            answer("ready")
            try:
                commanded = await _obey(recorder, failing)
            finally:
                means.stopping.set()
            await asyncio.wait_for(failing, LAST_BATCHES_S_MAX)
            if commanded:
                await _read_to_the_end(means)
                answer(_status(recorder))


def answer(line: str) -> None:
    print(line, flush=True)


def _clients(means: Means) -> list[Client]:
    clients: list[Client] = []
    for topic, partition in means.workload.places():
        if topic == ORDERED:
            clients.append(_sequenced(means, topic, partition))
        if topic == CONTENDED:
            rivals = (Rival(means, f"rival-{partition}-{n}", topic, partition) for n in range(RIVALS))
            clients += [rival.run for rival in rivals]
        if topic == CONTENDED or partition < FOLLOWED:
            clients.append(TailReader(means, f"tail-{topic}-{partition}", topic, partition).run)
    clients += [
        AiokafkaProducer(means, MIXED, None).run,
        PlainProducer(means, "plain-1", MIXED).run,
        PlainProducer(means, "plain-2", ORDERED).run,
        SpreadingProducer(means, "keyed", MIXED, keyed=True).run,
        SpreadingProducer(means, "unkeyed", MIXED, keyed=False).run,
        StreamReader(means, "stream-1", ORDERED, 0).run,
        StreamReader(means, "stream-2", MIXED, 0).run,
    ]
    clients += [ReplayReader(means, f"replay-{n}").run for n in range(REPLAYERS)]
    clients += [CallingMember(means, f"calling-{n}", CALLING_GROUP, ORDERED).run for n in range(MEMBERS)]
    clients += [PollingMember(means, f"polling-{n}", POLLING_GROUP, MIXED).run for n in range(MEMBERS)]
    clients += [LibrdkafkaMember(means, f"librdkafka-member-{n}", KIP_848_GROUP, ORDERED).run for n in range(2)]
    clients += [AiokafkaMember(means, f"aiokafka-member-{n}", CLASSIC_GROUP, MIXED).run for n in range(2)]
    return clients + _special_clients(means)


def _sequenced(means: Means, topic: str, partition: int) -> Client:
    """The only producer with sequences to the partition."""
    match partition:
        case 2:
            return LibrdkafkaProducer(means, topic, partition).run
        case 3:
            return AiokafkaProducer(means, topic, partition).run
        case _:
            return SequencedProducer(means, f"seq-{partition}", topic, partition).run


def _special_clients(means: Means) -> list[Client]:
    """The clients of the topics in `SPECIAL`, and of one that is deleted repeatedly."""
    readers = [TailReader(means, f"tail-{topic}", topic, 0) for topic in SPECIAL if topic != ARROW]
    return [
        FastProducer(means, "fast-leader", Acks.LEADER).run,
        FastProducer(means, "fast-none", Acks.NONE).run,
        Overwriter(means, "overwriter").run,
        Appender(means, "expiring", Sending(EXPIRING)).run,
        Trimmer(means, "trimmer").run,
        Grower(means, "grower").run,
        Remaker(means, "remaker").run,
        Appender(means, "arrow", Sending(ARROW, arrow=True)).run,
        TailReader(means, "arrow-tail", ARROW, 0, arrow=True).run,
        *(ShippedProducer(means, partition).run for partition in range(SPECIAL[SHIPPED].partitions)),
        ShippedConsumer(means).run,
        *(reader.run for reader in readers),
    ]


async def _create_all(caller: Caller, recorder: Recorder, workload: Workload) -> None:
    broker = workload.brokers[0]
    for topic, partitions in workload.partitions.items():
        await _create(caller, broker, {"name": topic, "partitions": partitions})
    for topic, special in SPECIAL.items():
        recorder.topic(special.rules)
        await _create(caller, broker, {"name": topic, "partitions": special.partitions, "configs": special.configs})


async def _create(caller: Caller, broker: str, topic: Mapping[str, object]) -> None:
    created = await caller.post(f"{broker}/v1/topics", json.dumps(topic).encode(), JSON_BODY)
    if created.status != 201:
        raise RuntimeError(f"topic {topic['name']} was not created: {created}")


async def _obey(recorder: Recorder, failing: asyncio.Future[list[None]]) -> bool:
    """Answer commands until `stop`; return whether `stop` came. A client that fails ends the process."""
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while True:
        reading = asyncio.ensure_future(commands.readline())
        await asyncio.wait((reading, failing), return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            failing.result()
        line = await reading
        if line.strip() == b"status":
            answer(_status(recorder))
        else:
            return line.strip() == b"stop"


def _status(recorder: Recorder) -> str:
    return json.dumps(
        {
            "acknowledged_at": recorder.acknowledged_at,
            "counts": recorder.counts,
            "unexpected": recorder.unexpected,
        }
    )


async def _read_to_the_end(means: Means) -> None:
    workload, chance = means.workload, Chance(means.workload, "final")
    for group in (CALLING_GROUP, POLLING_GROUP, KIP_848_GROUP, CLASSIC_GROUP):
        await read_committed(means, chance.broker(), group)
    for topic, partition in [*workload.places(), *await _special_places(means)]:
        first = chance.broker()
        await read_finally(means.caller, means.recorder, first, topic, partition)
        other = next((broker for broker in workload.brokers if broker != first), first)
        await _read_again(means, other, topic, partition)


async def _special_places(means: Means) -> list[tuple[str, int]]:
    """The partitions of the special topics. Only the service knows how many some of them have now."""
    places = []
    for topic in SPECIAL:
        told = await means.caller.get(f"{means.workload.brokers[0]}/v1/topics/{topic}")
        if not told.ok:
            raise RuntimeError(f"nobody tells the partitions of {topic}: {told}")
        places += [(topic, each["partition"]) for each in told.body["partitions"]]
    return places


async def _read_again(means: Means, broker: str, topic: str, partition: int) -> None:
    """Read the whole partition in its own session up to the first empty answer, which the judge takes as the end."""
    offset, empty = 0, False
    while not empty:
        again = await read_once(means.caller, means.recorder, "again", broker, topic, partition, offset)
        if again.code == OUT_OF_RANGE and offset < again.body["log_start_offset"]:
            offset = again.body["log_start_offset"]
        elif not again.ok:
            raise RuntimeError(f"the second final read of {topic}/{partition} at {offset} failed: {again}")
        else:
            empty = again.body["next_offset"] == offset
            offset = again.body["next_offset"]


if __name__ == "__main__":
    uvloop.run(main(parse_workload(sys.argv[1]), Path(sys.argv[2])))
