"""`tidelog bucket repair`: shows how a bucket that lost objects can be repaired, and repairs it if asked to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.services.cli.bucket import json_line, opened_bucket
from tidelog.services.cli.console import complain
from tidelog.services.cli.exit_codes import DAMAGED
from tidelog.services.cli.options import DEFAULT_STORE, JsonOption, StoreOption

if TYPE_CHECKING:
    from tidelog.storage.bucket.repair.bucket_repair import RepairPlan
    from tidelog.storage.bucket.repair.repair_plan import TopicRepair
    from tidelog.storage.manifests.losses import Loss

ApplyOption = Annotated[bool, typer.Option("--apply/--dry-run", help="Repair, or only print the plan.")]
DeepOption = Annotated[bool, typer.Option("--deep", help="Read every byte of segments.")]

ROUNDS_MAX = 4
"""A repair may reveal more damage: a log is read again once its manifest is repaired."""


def repair(
    apply: ApplyOption = False,
    deep: DeepOption = False,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Record lost records as lost, so that the rest of the log works again. Restore objects from a backup first.

    Without --apply it only prints the plan. Exit code 6 if something is damaged and was not repaired.
    Brokers may run while WAL entries are repaired; stop brokers and compactors before a manifest is.
    With --json it prints one action per line, then a line with the sums.

    [dim]tidelog bucket repair --store s3://my-bucket/log
    tidelog bucket repair --apply --store s3://my-bucket/log[/dim]
    """
    if not asyncio.run(_repair(store, apply=apply, deep=deep, as_json=as_json)):
        raise typer.Exit(DAMAGED)


async def _repair(store: str, *, apply: bool, deep: bool, as_json: bool) -> bool:
    """Whether no damage is left."""
    from tidelog.storage.bucket.repair.bucket_repair import BucketRepair

    async with opened_bucket(store) as opened:
        bucket = BucketRepair(opened.store, opened.topics(), opened.runtime, deep=deep)
        plan = await bucket.plan()
        done = 0
        _print(plan, as_json=as_json)
        while apply and plan and done < ROUNDS_MAX:
            await bucket.apply(plan)
            done += 1
            plan = await bucket.plan()
            _print(plan, as_json=as_json)
    _sum_up(plan, applied=done > 0, as_json=as_json)
    return not plan and not plan.unsolved


def _print(plan: RepairPlan, *, as_json: bool) -> None:
    for action in _actions(plan):
        print(json_line(action) if as_json else _line(action))


def _actions(plan: RepairPlan) -> Iterator[dict[str, object]]:
    """The actions of a plan, each for one object or one loss."""
    for number, restored in plan.lists:
        where = {"topic": restored.planned.name, "shard": number}
        reason = f"{restored.reason}; segments that are lost with it: {restored.lost_segments}"
        yield {"action": "list again", "object": restored.key, "reason": reason, **where}
        yield from _losses(restored.losses(), where)
    for shard in plan.shards:
        here = {"shard": shard.shard}
        if shard.fault is not None:
            yield {"action": "replace", "object": shard.newest_key, "reason": shard.fault, **here}
        for topic in shard.topics:
            yield from _actions_of_topic(topic, shard.shard)
        for entry in shard.entries.values():
            known = "its content is known" if entry.header else "its last offsets are unknown"
            yield {"action": "give up", "object": entry.key, "reason": f"{entry.reason}; {known}", **here}
    for finding in plan.unsolved:
        yield {"action": "none", "object": finding.key, "reason": finding.text}


def _actions_of_topic(topic: TopicRepair, shard: int) -> Iterator[dict[str, object]]:
    where = {"topic": topic.topic, "shard": shard}
    for key, reason in topic.removed.items():
        yield {"action": "unlist", "object": key, "reason": reason, **where}
    for segment in topic.added:
        yield {"action": "list", "object": segment.key, "reason": "holds records that no other object holds", **where}
    yield from _losses(topic.losses, where)


def _losses(lost: Mapping[int, Sequence[Loss]], where: Mapping[str, object]) -> Iterator[dict[str, object]]:
    for partition, losses in sorted(lost.items()):
        for loss in losses:
            offsets = {"partition": partition, "first_offset": loss.first_offset, "next_offset": loss.next_offset}
            yield {"action": "lose", "object": loss.key, "reason": "no other object holds them", **where, **offsets}


def _line(action: dict[str, object]) -> str:
    if action["action"] == "lose":
        last, place = int(str(action["next_offset"])) - 1, f"{action['topic']}-{action['partition']}"
        return f"lose: offsets {action['first_offset']} to {last} of {place}, which {action['object']} held"
    if action["action"] == "none":
        return f"cannot repair: {action['object']}: {action['reason']}"
    return f"{action['action']}: {action['object']}: {action['reason']}"


def _sum_up(plan: RepairPlan, *, applied: bool, as_json: bool) -> None:
    left = bool(plan) or bool(plan.unsolved)
    if as_json:
        print(json_line({"applied": applied, "repaired": not left}))
    elif plan and not applied:
        complain("nothing was changed: restore objects from a backup if you can, else add --apply")
    elif left:
        complain("NOT REPAIRED: see above")
    else:
        complain("repaired" if applied else "nothing is damaged")
