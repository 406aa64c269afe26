"""Spark's Kafka source, for comparison in the benchmarks: its jars, fetched with Maven."""

from __future__ import annotations

import shutil
from pathlib import Path

from infra.component import CannotMake, Component, cache_folder, run_showing_progress, workshop

VERSION = "4.2.0"  # the newest on Maven Central; works with Spark 4.3
JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),  # the newest; unused without tokens
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
"""The versions of Spark's own build. They are fetched without their dependencies: Spark contains these already, and its
build file names a mirror that is not reachable everywhere."""

_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>spark-kafka</artifactId><version>1</version><dependencies>
{dependencies}
</dependencies></project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)


def folder() -> Path:
    """The folder that holds the jars."""
    return cache_folder() / "spark-jars" / f"spark-sql-kafka-{VERSION}"


def find() -> Path | None:
    """The folder, None if it is missing. One rename creates it, so it is complete."""
    return folder() if folder().is_dir() else None


def make() -> None:
    """Fetch them: four jars, 11 MB."""
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotMake("Maven is not installed")
    with workshop(folder().parent) as draft:
        pom, target = draft / "pom.xml", draft / "jars"
        pom.write_text(_POM.format(dependencies="\n".join(_DEPENDENCY.format(*jar) for jar in JARS)))
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        run_showing_progress("spark-kafka", command, {})
        target.replace(folder())


SPARK_KAFKA = Component(
    name="spark-kafka",
    purpose="Spark's Kafka source and sink, for tests of Kafka's protocol and benchmarks",
    how="install Java 17 or newer and Maven, then `python infra/components.py prepare spark-kafka`",
    find=find,
    make=make,
    seconds=20,
    megabytes=11,
    programs=("mvn",),
)
