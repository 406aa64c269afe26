"""Kafka, for comparison in the benchmarks and in tests: the jars of its broker and load tools, fetched with Maven."""

from __future__ import annotations

import shutil
from pathlib import Path

from infra.component import CannotMake, Component, cache_folder, run_showing_progress, workshop

VERSION = "4.1.1"

_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>kafka</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version></dependency>
</dependencies></project>
"""


def jars() -> Path:
    """The folder that holds all jars."""
    return cache_folder() / f"kafka-{VERSION}"


def find() -> Path | None:
    """The folder, None if it is missing. One rename creates it, so it is complete."""
    return jars() if jars().is_dir() else None


def make() -> None:
    """Fetch them: about 100 MB."""
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotMake("Maven is not installed")
    with workshop(cache_folder()) as folder:
        pom = folder / "pom.xml"
        pom.write_text(_POM.format(version=VERSION))
        target = folder / "jars"
        options = ["-DincludeScope=runtime", f"-DoutputDirectory={target}"]
        run_showing_progress("kafka", [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", *options], {})
        target.replace(jars())


KAFKA = Component(
    name="kafka",
    purpose=f"Kafka {VERSION}, for the benchmarks and tests/kafka/oracle",
    how="install Java 17 or newer and Maven, then `python infra/components.py prepare kafka`",
    find=find,
    make=make,
    seconds=60,
    megabytes=100,
    programs=("mvn",),
)
