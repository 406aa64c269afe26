"""Generates Python messages from `rpc.proto` with the compiler that comes with grpcio-tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

SOURCE_ROOT = "coordinator"
PROTO = "tidelog/coordinator/etcd/rpc.proto"


def generate_messages(root: Path) -> Sequence[str]:
    """Write `rpc_pb2.py` and `rpc_pb2.pyi` beside the .proto. Returns the patterns of the files."""
    from grpc_tools import protoc  # there in the build's environment alone

    folder = root / SOURCE_ROOT
    exit_code = protoc.main(
        ["protoc", f"-I{folder}", f"--python_out={folder}", f"--pyi_out={folder}", str(folder / PROTO)]
    )
    if exit_code != 0:
        raise RuntimeError(f"protoc could not compile {PROTO}: exit code {exit_code}")
    return [f"{SOURCE_ROOT}/**/*_pb2.py", f"{SOURCE_ROOT}/**/*_pb2.pyi"]
