"""Rows and a report for tests, with invented figures."""

from dataclasses import replace

from benchmarks.measure import Goal, Machine, Origin, Report, Row, Side, compare, not_run

MACHINE = Machine(
    cores=2,
    memory_gib=24.0,
    system="Linux 6",
    python="3.11",
    java="openjdk 17",
    versions="Kafka 4.1",
    quick=False,
)
ORIGIN = Origin(
    date="2026-11-21",
    commit="abc1234",
    rounds=3,
    cpu="a processor",
    disk="ext4 on vda",
    load_before=0.1,
    settings=("Tidelog: flush.interval.ms=0", "Kafka: defaults"),
)


def side(name: str, *samples: float, unit: str = "MB/s") -> Side:
    return Side(name, f"the client of {name}", unit, list(samples), [f"a fact of {name}"])


def sample_rows() -> list[Row]:
    """One row that met its goal, one that missed it, one with a single side, and one that did not run. The first has an
    origin."""
    fast = compare("fast", "produce", Goal("2 x Kafka", 2.0), side("Tidelog", 9, 10, 11), side("Kafka", 2, 4, 3))
    return [
        replace(fast, origin=ORIGIN),
        compare("large", "stored", Goal("0.8 x", 0.8, at_least=False), side("Tidelog", 9.0), side("Kafka", 10.0)),
        Row(
            "memory", "memory", Goal("at most 150 MiB", 150, at_least=False), 120.0, [side("Tidelog", 120, unit="MiB")]
        ),
        not_run("absent", "s2", Goal("2 x", 2.0), "s2 is missing"),
    ]


def sample_report() -> Report:
    return Report(MACHINE, tuple(sample_rows()))
