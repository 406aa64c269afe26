"""`tidelog topic copy SOURCE TARGET`: copies a topic's records within a cluster or to another one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from tidelog.services.cli.broker_options import BrokerChoice, chosen_broker
from tidelog.services.cli.console import complain, print_json
from tidelog.services.cli.option_sets import OptionSet
from tidelog.services.cli.options import JsonOption, TopicArgument
from tidelog.services.cli.progress import Progress
from tidelog.storage.errors import Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    from tidelog.client import Admin, Producer, TopicDescription
    from tidelog.services.cli.copy_run import CopyRun
    from tidelog.services.cli.copy_state import CopyState

TargetArgument = Annotated[str, typer.Argument(help="The topic to copy to.", metavar="TARGET", show_default=False)]
ToOption = Annotated[
    str | None, typer.Option("--to", help="The target's broker, if it is another cluster.", metavar="URL")
]
ToProfileOption = Annotated[
    str | None, typer.Option("--to-profile", help="The target's profile, if it is another cluster.", metavar="NAME")
]
PlacementOption = Annotated[
    Literal["keep", "by-key"],
    typer.Option("--partitions", help="Keep each record's partition, or choose it by the key again."),
]
ResumeOption = Annotated[
    Path | None,
    typer.Option("--resume", help="Continue from this file if it exists, and keep it up to date.", metavar="FILE"),
]
RepeatsOption = Annotated[
    bool, typer.Option("--allow-repeats", help="With --resume: continue even if some records may be copied twice.")
]


@dataclass(frozen=True)
class CopyOptions(OptionSet):
    """Where to copy to, and how."""

    to: ToOption = None
    to_profile: ToProfileOption = None
    placement: PlacementOption = "keep"
    resume: ResumeOption = None
    allow_repeats: RepeatsOption = False


def copy(
    broker: BrokerChoice,
    source: TopicArgument,
    target: TargetArgument,
    options: CopyOptions,
    as_json: JsonOption = False,
) -> None:
    """Copy a topic's records with their keys, headers and timestamps, up to its present end.

    A target that does not exist is created with the partitions and configs of the source.
    With --resume, a copy that was stopped continues, and each record is in the target once.

    [dim]tidelog topic copy web web-copy
    tidelog topic copy web web --to http://10.0.0.9:8080 --resume web.copy[/dim]
    """
    run = _copied(broker, source, target, options)
    if as_json:
        print_json({"source": source, "target": target, "records": run.records, "positions": run.state.positions})
    else:
        complain(f"{run.records:,} records from {source} to {target}")


def _copied(broker: BrokerChoice, source: str, target: str, options: CopyOptions) -> CopyRun:
    """The complete run."""
    other = _target_of(broker, options.to, options.to_profile)
    with broker.admin() as ours, other.admin() as theirs:
        plan = _planned(ours, theirs, source, target, options.placement)
    if plan.source.topic_id == plan.target.topic_id:
        raise Invalid(f"{source} cannot be copied to itself", field="target")
    with _running(broker, other, plan, options.resume, allow_repeats=options.allow_repeats) as run:
        run.run()
    if options.resume is not None:
        options.resume.unlink(missing_ok=True)
    return run


@dataclass(frozen=True)
class _Plan:
    source: TopicDescription
    target: TopicDescription
    placement: Literal["keep", "by-key"]

    @property
    def ends(self) -> dict[int, int]:
        """The ends of the source's partitions, by partition."""
        return {part.partition: part.high_watermark for part in self.source.partitions}

    @property
    def compacted(self) -> bool:
        return "compact" in self.source.configs.get("cleanup.policy", "")

    def beginning(self, producer_id: str) -> CopyState:
        from tidelog.services.cli.copy_state import CopyState

        first = {part.partition: part.log_start_offset for part in self.source.partitions}
        return CopyState(
            self.source.topic_id, self.target.topic_id, len(self.target.partitions), self.placement, producer_id, first
        )


def _target_of(broker: BrokerChoice, to: str | None, to_profile: str | None) -> BrokerChoice:
    """The password is sent to another address only if its profile names a user."""
    if to is not None and to_profile is not None:
        raise Invalid("give --to or --to-profile, not both", field="to")
    if to_profile is not None:
        return chosen_broker(profile=to_profile)
    return broker if to is None else BrokerChoice(to, broker.ca_file)


def _planned(ours: Admin, theirs: Admin, source: str, target: str, placement: Literal["keep", "by-key"]) -> _Plan:
    from tidelog.services.cli.copy_run import check_fits

    described = ours.topic(source)
    try:
        found = theirs.topic(target)
    except NotFound:
        found = theirs.create_topic(target, len(described.partitions), dict(described.configs))
    check_fits(placement, described.partitions, found.partitions, target)
    return _Plan(described, found, placement)


@contextlib.contextmanager
def _running(
    ours: BrokerChoice, theirs: BrokerChoice, plan: _Plan, file: Path | None, *, allow_repeats: bool
) -> Iterator[CopyRun]:
    """A run that is ready to start, with its producer and its progress."""
    from tidelog.client import Producer, ProducerOptions, Refused
    from tidelog.services.cli.copy_run import CopyRun, left_of
    from tidelog.services.cli.copy_state import write_state

    state, resumed = _state(plan, file, allow_repeats=allow_repeats)
    options = ProducerOptions(producer_id=state.producer_id)
    run: CopyRun | None = None

    def refuse(refused: Refused) -> None:
        assert run is not None, "nothing is sent before"
        run.refused = run.refused or refused

    with (
        _saying_how_to_continue(file),
        Producer(theirs.access(), plan.target.name, options, on_refusal=refuse) as producer,
        Progress(f"to {plan.target.name}", None, "copied", of_records=True, reads_stdin=False) as progress,
    ):
        held = _held(producer, state) if resumed else {}
        save = _unsaved if file is None else partial(write_state, file)
        run = CopyRun(ours.access(), plan.source.name, producer, state, held, save, progress.count_records)
        progress.expect(left_of(state.positions, plan.ends))
        yield run


def _unsaved(_state: CopyState) -> None:
    """Without --resume, no state is kept."""


def _state(plan: _Plan, file: Path | None, *, allow_repeats: bool) -> tuple[CopyState, bool]:
    """Where to begin, and whether the target may hold records after that of the same producer.

    A compacted source may have lost records since, so they cannot be counted: there, records after the checkpoint are
    copied again. That is harmless, since the last record of a key counts."""
    from tidelog.services.cli.copy_state import read_state
    from tidelog.storage.runtime import Runtime

    beginning = plan.beginning(f"copy.{Runtime().entropy.new_id()}")
    found = None if file is None else read_state(file)
    if found is None:
        return beginning, False
    if not found.same_copy(beginning):
        raise Invalid(f"{file} is of another copy: the topics or --partitions differ", field="resume")
    positions = {**beginning.positions, **found.positions}
    if allow_repeats or found.settled or plan.compacted:
        return msgspec.structs.replace(beginning, positions=positions), False
    return found, True


def _held(producer: Producer, state: CopyState) -> dict[int, int]:
    from tidelog.services.cli.copy_state import held_since

    held = held_since(state, producer.resume())
    if held is None:
        raise Invalid(
            "it is unknown which records after the last checkpoint are in the target: it has forgotten the copy "
            "(producer.id.expiration.ms), or refused a record. --allow-repeats continues there and may repeat records",
            field="resume",
        )
    return held


@contextlib.contextmanager
def _saying_how_to_continue(file: Path | None) -> Iterator[None]:
    advice = (
        f"to continue, run the same command again: {file} says where"
        if file is not None
        else "without --resume FILE, another run begins at the start and repeats records"
    )
    try:
        yield
    except KeyboardInterrupt:
        complain(f"stopped: {advice}")
        raise
    except Unavailable as error:
        error.add_note(advice)
        raise
