"""The report of a run: what was done, how long clients had to wait, and the judge's verdict. Markdown for people, and
JSON.

An **outage** of a partition is the time between two acknowledgements of appends to it. Clients append to each partition
a few times a second, so it is short in calm weather. A fault is charged with the longest outage that overlaps it.
Clients have few requests in flight and wait long for answers: if a client waits for a paused broker, the outage is the
client's and not the shard's. Handovers and takeovers of shards are reported separately.

A **cure** is the time from a producer's first failure of a batch to its acknowledgement, for producers with sequences.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.chaos.broker_logs import handovers_in
from tests.chaos.chaos_run import Outcome, Struck
from tests.chaos.checker.history import Append, History
from tests.chaos.checker.history import Outcome as Known
from tests.chaos.load.topics import REMADE


@dataclass(frozen=True)
class Quantiles:
    """Milliseconds."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class OfKind:
    """A kind of fault: how often it happened, and its worst effect."""

    kind: str
    times: int
    outage_s_max: float
    outage_at: str
    cure_s_max: float
    recovery_s_max: float


@dataclass(frozen=True)
class Report:
    """`acknowledged` and similar fields count requests; values are records."""

    seed: int
    commit: str
    minutes: float
    brokers: int
    etcd_nodes: int
    holds: bool
    verdict: str
    trouble: Sequence[str]
    acknowledged: int
    refused: int
    conflicts: int
    unknown: int
    reads: int
    values_in_log: int
    values_read: int
    append: Quantiles
    calm_append: Quantiles
    longest_outage_s: Mapping[str, float]
    kinds: Sequence[OfKind]
    handovers: Mapping[str, Quantiles]
    faults: Sequence[Struck]


@dataclass(frozen=True)
class _Span:
    start: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.start

    def overlaps(self, struck: Struck) -> bool:
        return self.start < struck.recovered_at and struck.began_at < self.end


def report_on(outcome: Outcome) -> Report:
    """Compute all figures of a run."""
    outages = _outages(outcome.history)
    cures = _cures(outcome.history)
    known, verdict = outcome.verdict.appends, outcome.verdict
    return Report(
        seed=outcome.seed,
        commit=outcome.commit,
        minutes=round((outcome.ended_at - outcome.began_at) / 60, 2),
        brokers=outcome.shape.brokers,
        etcd_nodes=outcome.shape.etcd_nodes,
        holds=outcome.holds,
        verdict=f"{verdict}\n{outcome.oracle}",
        trouble=outcome.trouble,
        acknowledged=known[Known.OK],
        refused=known[Known.FAIL],
        conflicts=known[Known.CONFLICT],
        unknown=known[Known.UNKNOWN],
        reads=verdict.reads.total(),
        values_in_log=verdict.values_in_log,
        values_read=verdict.values_read,
        append=quantiles(append.end - append.start for append in _acknowledged(outcome.history)),
        calm_append=quantiles(_calm(outcome)),
        longest_outage_s={place: round(max(span.length for span in spans), 3) for place, spans in outages.items()},
        kinds=[_of_kind(kind, outcome.struck, outages, cures) for kind in sorted({s.kind for s in outcome.struck})],
        handovers=_handovers(outcome),
        faults=outcome.struck,
    )


def quantiles(seconds: Iterable[float]) -> Quantiles:
    """Nearest rank."""
    ordered = sorted(seconds) or [0.0]

    def at(part: float) -> float:
        return round(1_000 * ordered[min(len(ordered) - 1, int(part * len(ordered)))], 1)

    return Quantiles(len(ordered), at(0.50), at(0.99), at(1.0))


def write_report(report: Report, folder: Path) -> Path:
    """Write `report.md` and `report.json`; return the path of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(asdict(report), indent=2) + "\n")
    path = folder / "report.md"
    path.write_text("\n".join(_markdown(report)) + "\n")
    return path


def _acknowledged(history: History) -> Iterable[Append]:
    return (append for append in history.appends if append.outcome is Known.OK)


def _calm(outcome: Outcome) -> Iterable[float]:
    """Appends that met no fault."""
    for append in _acknowledged(outcome.history):
        if not any(_Span(append.start, append.end).overlaps(struck) for struck in outcome.struck):
            yield append.end - append.start


def _outages(history: History) -> dict[str, list[_Span]]:
    """Outages of the plain topics; clients append too rarely to the others."""
    special = {rules.topic for rules in history.topics}
    ends: dict[str, list[float]] = defaultdict(list)
    for append in _acknowledged(history):
        for placed in append.placed if append.topic not in special and not append.topic.startswith(REMADE) else ():
            ends[f"{append.topic}/{placed.partition}"].append(append.end)
    return {place: _between(sorted(moments)) for place, moments in sorted(ends.items()) if len(moments) > 1}


def _between(moments: Sequence[float]) -> list[_Span]:
    return [_Span(one, next_one) for one, next_one in itertools.pairwise(moments)]


def _cures(history: History) -> list[_Span]:
    failed: dict[tuple[str, int], float] = {}
    cures = []
    for append in history.appends:
        if not append.sequenced:
            continue
        batch = (append.client, append.first)
        if append.outcome is not Known.OK:
            failed.setdefault(batch, append.end)
        elif batch in failed:
            cures.append(_Span(failed.pop(batch), append.end))
    return cures


def _of_kind(
    kind: str, struck: Sequence[Struck], outages: Mapping[str, Sequence[_Span]], cures: Sequence[_Span]
) -> OfKind:
    mine = [each for each in struck if each.kind == kind]
    worst, where = 0.0, ""
    for place, spans in outages.items():
        for span in spans:
            if span.length > worst and any(span.overlaps(each) for each in mine):
                worst, where = span.length, place
    cure = max((span.length for span in cures if any(span.overlaps(each) for each in mine)), default=0.0)
    recovery = max(each.recovered_at - each.over_at for each in mine)
    return OfKind(kind, len(mine), round(worst, 3), where, round(cure, 3), round(recovery, 3))


def _handovers(outcome: Outcome) -> dict[str, Quantiles]:
    began = [struck.began_at + outcome.epoch_s for struck in outcome.struck]
    by_kind: dict[str, list[float]] = defaultdict(list)
    for handover in handovers_in(outcome.folder / "cluster" / "logs", began):
        by_kind[handover.kind].append(handover.seconds)
    return {kind: quantiles(seconds) for kind, seconds in sorted(by_kind.items())}


def _markdown(report: Report) -> Iterable[str]:
    yield f"# Chaos, seed {report.seed}: {'holds' if report.holds else 'BROKEN'}"
    yield ""
    yield 'This is the report of one run of `make chaos`. "Holds" means that no rule was broken.'
    yield ""
    yield f"Commit {report.commit}."
    yield f"{report.minutes:g} minutes, {report.brokers} brokers, {report.etcd_nodes} nodes of etcd, MinIO."
    yield f"{len(report.faults)} faults of {len(report.kinds)} kinds."
    yield ""
    yield from ("```", report.verdict, *report.trouble, "```", "")
    yield "| requests acknowledged | refused, nothing taken | conflicts | unknown | reads | records | records read |"
    yield "|---|---|---|---|---|---|---|"
    counts = (report.acknowledged, report.refused, report.conflicts, report.unknown, report.reads)
    yield f"| {' | '.join(f'{n:,}' for n in (*counts, report.values_in_log, report.values_read))} |"
    yield ""
    yield "| latency | count | p50 ms | p99 ms | max ms |"
    yield "|---|---|---|---|---|"
    yield _row("acknowledged appends", report.append)
    yield _row("acknowledged appends outside faults", report.calm_append)
    for kind, handovers in report.handovers.items():
        yield _row(f"{kind}, of a shard, by the brokers' logs", handovers)
    yield ""
    yield "An *outage* is the time between two acknowledged appends to a partition. A *cure* is the time from a"
    yield "producer's first failure of a batch to its acknowledgement. A *recovery* is the time from the end of a fault"
    yield "until every partition takes appends again."
    yield ""
    yield "| kind of fault | times | longest outage s | partition | longest cure s | longest recovery s |"
    yield "|---|---|---|---|---|---|"
    for of in report.kinds:
        figures = f"{of.outage_s_max:.2f} | {of.outage_at} | {of.cure_s_max:.2f} | {of.recovery_s_max:.2f}"
        yield f"| {of.kind} | {of.times} | {figures} |"
    yield ""
    yield "| partition | longest outage s |"
    yield "|---|---|"
    for place, seconds in report.longest_outage_s.items():
        yield f"| {place} | {seconds:.2f} |"


def _row(name: str, figures: Quantiles) -> str:
    return f"| {name} | {figures.count:,} | {figures.p50_ms:g} | {figures.p99_ms:g} | {figures.max_ms:g} |"
