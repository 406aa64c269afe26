"""Generates Python messages from `rpc.proto` when the package is built, for a wheel and for an editable install.

It writes them beside the .proto, where an editable install, type checks and tests find them. git ignores them, and the
wheel includes them as artifacts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE_ROOT = "coordinator"
PROTO = "tidelog/coordinator/etcd/rpc.proto"


class MessagesFromProto(BuildHookInterface[Any]):
    """Runs the compiler that comes with grpcio-tools."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # the hook's interface
        """Called before each build of a target. Fails the build if the .proto is wrong."""
        from grpc_tools import protoc  # there in the build's environment alone

        root = Path(self.root) / SOURCE_ROOT
        exit_code = protoc.main(["protoc", f"-I{root}", f"--python_out={root}", f"--pyi_out={root}", str(root / PROTO)])
        if exit_code != 0:
            raise RuntimeError(f"protoc could not compile {PROTO}: exit code {exit_code}")
        build_data["artifacts"] += [f"{SOURCE_ROOT}/**/*_pb2.py", f"{SOURCE_ROOT}/**/*_pb2.pyi"]
