"""The library is compiled from this source, and its wheel names the platforms where it runs."""

from __future__ import annotations

import hashlib
import platform
import struct
import sys
from pathlib import Path

import pytest
from build_steps.native_library import LIBRARY, SOURCE, platform_here

from tidelog.record_batches import native

ROOT = Path(__file__).parents[2]


def test_the_library_is_compiled_from_the_present_source() -> None:
    present = hashlib.sha256((ROOT / SOURCE).read_bytes()).hexdigest()
    assert native.source_digest() == present, "records.c has changed since it was compiled: run `make test`"


def test_the_package_loads_the_file_that_the_build_writes() -> None:
    assert (ROOT / LIBRARY).samefile(native.LIBRARY)


def test_a_missing_library_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "_records.so")
    with pytest.raises(ImportError, match=r"_records\.so is missing.*make test"):
        native._loaded()


@pytest.mark.skipif(sys.platform != "linux", reason="ELF")
def test_the_library_needs_no_newer_c_library_than_its_wheel_says() -> None:
    content = native.LIBRARY.read_bytes()
    versions = {part.split(b"\0")[0] for part in content.split(b"GLIBC_2.")[1:]}
    assert all(int(version.split(b".")[0]) <= 17 for version in versions), versions
    assert struct.unpack_from("<H", content, 18)[0] == {"x86_64": 62, "aarch64": 183}[platform.machine()]


def test_an_unknown_platform_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(RuntimeError, match=r"cannot be built on .* riscv64; it supports linux-gnu x86_64"):
        platform_here()


@pytest.mark.parametrize(("soabi", "tag"), [("cpython-311-x86_64-linux-musl", "musllinux"), ("x-gnu", "manylinux")])
def test_the_wheel_names_the_c_library(monkeypatch: pytest.MonkeyPatch, soabi: str, tag: str) -> None:
    monkeypatch.setattr("sysconfig.get_config_var", lambda _: soabi)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert tag in platform_here().wheel_tag
