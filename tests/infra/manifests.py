"""The Kubernetes manifests as kustomize builds them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import yaml
from tests.components.required import require_component
from tests.infra.compose_file import ROOT

FOLDER = ROOT / "infra/kubernetes"
EXAMPLE = "overlays/example"

Manifest = Mapping[str, Any]


@cache
def built(folder: str) -> Sequence[Manifest]:
    """Every object of `folder`."""
    command = [require_component("kustomize"), "build", FOLDER / folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def one(kind: str, folder: str = EXAMPLE, name: str = "tidelog") -> Manifest:
    """The only object of that kind and name."""
    (found,) = [manifest for manifest in built(folder) if manifest["kind"] == kind and _name(manifest) == name]
    return found


def _name(manifest: Manifest) -> str:
    """The name without the hash that kustomize appends to a ConfigMap's name."""
    name: str = manifest["metadata"]["name"]
    return name.rpartition("-")[0] if manifest["kind"] == "ConfigMap" else name
