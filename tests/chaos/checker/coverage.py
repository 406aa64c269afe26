"""The kinds of operations that a run must have recorded. A kind that was not recorded was not judged.

The names of clients and sessions begin with the kind of client (`load/`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from tests.chaos.checker.history import Acks, Append, EndQuery, History, Outcome, Read

OF_EACH_MIN = 3
"""How often each kind must have been recorded at least."""


def _appends(fits: Callable[[Append], object]) -> Callable[[History], int]:
    return lambda history: sum(each.outcome is Outcome.OK and bool(fits(each)) for each in history.appends)


def _reads(prefix: str, *, empty: bool = False) -> Callable[[History], int]:
    def fits(read: Read) -> bool:
        return read.outcome is Outcome.OK and read.session.startswith(prefix) and bool(read.runs) is not empty

    return lambda history: sum(map(fits, history.reads))


def _answered(query: EndQuery) -> bool:
    return query.outcome is Outcome.OK


def _kept_by(prefix: str, acks: Acks = Acks.ALL) -> Callable[[History], int]:
    return _appends(lambda append: append.client.startswith(prefix) and append.acks is acks)


KINDS: Mapping[str, Callable[[History], int]] = {
    "appends with sequences": _appends(lambda append: append.sequenced),
    "appends without sequences": _appends(lambda append: append.partition is not None and not append.sequenced),
    "appends with keys that the service spread": _appends(lambda append: append.partition is None and append.keys),
    "appends without keys that the service placed": _appends(
        lambda append: append.partition is None and not append.keys
    ),
    "appends at an expected offset": _appends(lambda append: append.expected_offset is not None),
    "conflicts": lambda history: sum(each.outcome is Outcome.CONFLICT for each in history.appends),
    "appends with acks=1": _kept_by("fast-", Acks.LEADER),
    "appends with acks=0": _kept_by("fast-", Acks.NONE),
    "appends as Arrow": _kept_by("arrow"),
    "appends by the shipped producer": _kept_by("shipped-producer-"),
    "appends by librdkafka": _kept_by("librdkafka-"),
    "appends by aiokafka": _kept_by("aiokafka-"),
    "appends to a compacted topic": _kept_by("overwriter"),
    "appends to a topic whose records expire": _kept_by("expiring"),
    "appends to a topic that gets partitions": _kept_by("grower"),
    "appends to topics that are deleted": _kept_by("remaker"),
    "deletions of records": lambda history: sum(trim.outcome is Outcome.OK for trim in history.trims),
    "reads as Arrow": _reads("arrow-tail"),
    "reads by the shipped consumer": _reads("shipped-consumer"),
    "reads by members of librdkafka": _reads("librdkafka-member-"),
    "reads by members of aiokafka": _reads("aiokafka-member-"),
    "commits by clients of Kafka": lambda history: sum(
        each.outcome is Outcome.OK and "kafka-member-" in each.member for each in history.group_commits
    ),
    "reads that follow": _reads("tail-"),
    "empty reads": _reads("", empty=True),
    "reads by event streams": _reads("stream-"),
    "reads of the past": _reads("replay-"),
    "second final reads": _reads("again"),
    "heartbeats of groups": lambda history: sum(each.outcome is Outcome.OK for each in history.heartbeats),
    "commits of groups": lambda history: sum(each.outcome is Outcome.OK for each in history.group_commits),
    "commits that groups refused": lambda history: sum(
        each.outcome is Outcome.CONFLICT for each in history.group_commits
    ),
    "polls of groups that brought records": lambda history: sum(each.polled for each in history.group_reads),
    "members that began at a commit": lambda history: sum(each.offset > 0 for each in history.group_starts),
    "queries for the end": lambda history: sum(map(_answered, history.ends)),
}


AT_THE_END = ("second final reads",)
"""The kinds that a run records when its load stops."""


def unrecorded(history: History, *, but: Collection[str] = ()) -> Iterator[str]:
    """A sentence for each kind that was recorded too rarely, except the kinds `but`."""
    for kind, count in KINDS.items():
        if kind not in but and (found := count(history)) < OF_EACH_MIN:
            yield f"too few {kind} were recorded: {found}, at least {OF_EACH_MIN} are needed"
