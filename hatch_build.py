"""What is generated when the package is built, for a wheel and for an editable install: see `build_steps/`.

Both steps write beside their source, where an editable install, type checks and tests find the files. git ignores them,
and the wheel includes them as artifacts.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))  # the build's environment does not have this folder

from build_steps.messages import generate_messages
from build_steps.native_library import compile_library, platform_here


class GeneratedFiles(BuildHookInterface[Any]):
    """Generates the messages of etcd and compiles the library of record batches."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # the hook's interface
        """Called before each build of a target. Fails the build if a step fails."""
        if self.target_name != "wheel":
            return  # a source distribution has the sources
        root = Path(self.root)
        platform = platform_here()
        build_data["artifacts"] += [*generate_messages(root), *compile_library(root, platform)]
        build_data["pure_python"] = False
        build_data["tag"] = platform.wheel_tag
