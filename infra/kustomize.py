"""kustomize, which builds the manifests of `kubernetes/`; compiled from source with Go."""

from __future__ import annotations

from pathlib import Path

from infra.component import Component, tools_folder
from infra.go_program import go_install

VERSION = "v5.7.1"


def program() -> Path:
    """The program's path."""
    return tools_folder() / f"kustomize-{VERSION}"


def find() -> Path | None:
    """The program, None if it is missing."""
    return program() if program().is_file() else None


def make() -> None:
    """Build it: about half a minute."""
    go_install("kustomize", f"sigs.k8s.io/kustomize/kustomize/v5@{VERSION}", program())


KUSTOMIZE = Component(
    name="kustomize",
    purpose="tests of the Kubernetes manifests",
    how="install Go 1.24 or newer (https://go.dev/dl), then `python infra/components.py prepare kustomize`",
    find=find,
    make=make,
    seconds=30,
    megabytes=30,
    programs=("go",),
)
