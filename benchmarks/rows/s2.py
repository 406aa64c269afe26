"""One partition on MinIO beside one stream of s2 lite: 32 producers of 100 x 1 KiB, and a reader at the tail."""

from __future__ import annotations

import json
import statistics

from benchmarks import minio, s2_lite
from benchmarks.bench import Bench
from benchmarks.loads.s2_inside import S2_FLUSH_MS
from benchmarks.measure import Goal, Row, Side, compare, not_run

RECORDS = 300_000
WHAT = "one partition on MinIO, 32 producers of 100 x 1 KiB, a reader at its tail"
SPEED = Goal("2 x the MB/s of s2 lite at its best setting", 2.0)
P50 = Goal("p50 not higher at equal PUT/s", 1.0, at_least=False)
P99 = Goal("p99 not higher at equal PUT/s", 1.0, at_least=False)
NAMES = (("minio-throughput", SPEED), ("minio-p50", P50), ("minio-p99", P99))
OUR_CLIENT = "prebuilt Arrow bodies, 32 connections with one request in flight; the tail as Arrow"
S2_CLIENT = "prebuilt protobuf bodies over REST, 32 connections with one request in flight; the tail as protobuf"

Trials = list[dict[str, float]]


def rows(bench: Bench) -> list[Row]:
    why = s2_lite.missing() or minio.missing()
    if why:
        return [not_run(name, WHAT, goal, why) for name, goal in NAMES]
    out = s2_lite.inside_own_network(
        "benchmarks.loads.s2_inside",
        [
            *("--scratch", bench.fresh_folder("s2"), "--payload", bench.payload("letters")),
            *("--records", bench.scaled(RECORDS), "--rounds", bench.rounds),
        ],
    )
    return _rows(json.loads(out.strip().splitlines()[-1]))


def _rows(found: dict[str, Trials]) -> list[Row]:
    s2_sides = {
        ms: _side(found[f"s2 {ms} ms"], f"s2 lite, flush {ms} ms", S2_CLIENT, "mb_per_s", "MB/s") for ms in S2_FLUSH_MS
    }
    best = max(s2_sides.values(), key=lambda side: side.median)
    ours = max(
        (
            _side(found[name], name.replace("tidelog", "Tidelog"), OUR_CLIENT, "mb_per_s", "MB/s")
            for name in ("tidelog", "tidelog, no interval")
        ),
        key=lambda side: side.median,
    )
    made = [compare("minio-throughput", WHAT, SPEED, ours, best, _all_speeds(found))]
    for name, goal, figure in (("minio-p50", P50, "p50_ms"), ("minio-p99", P99, "p99_ms")):
        ours = _side(found["tidelog, equal PUTs"], "Tidelog", OUR_CLIENT, figure, "ms")
        theirs = _side(found["s2 50 ms"], "s2 lite, flush 50 ms", S2_CLIENT, figure, "ms")
        made.append(compare(name, f"{WHAT}: {figure[:3]} at equal PUT/s", goal, ours, theirs))
    return made


def _side(trials: Trials, name: str, client: str, figure: str, unit: str) -> Side:
    return Side(name, client, unit, [trial[figure] for trial in trials], [_facts(trials)])


def _facts(trials: Trials) -> str:
    def middle(figure: str) -> float:
        return statistics.median(trial[figure] for trial in trials)

    return (
        f"{middle('mb_per_s'):.0f} MB/s, p50 {middle('p50_ms'):.0f} ms, p99 {middle('p99_ms'):.0f} ms,"
        f" {middle('puts_per_s'):.0f} PUT/s"
    )


def _all_speeds(found: dict[str, Trials]) -> str:
    return "; ".join(f"{name}: {_facts(trials)}" for name, trials in found.items())
