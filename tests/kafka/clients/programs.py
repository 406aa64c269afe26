"""Runs a client's program against a broker of this process, and reads what it saw."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

PROGRAM_S_MAX = 240.0
"""A program that has not ended by then hangs."""


class Output(NamedTuple):
    """Both outputs of a program."""

    out: bytes
    errors: bytes


async def run_program(*command: str | Path, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Output:
    """Run `command` to its end. Fails the test with the program's errors if it does not end with 0."""
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=env)
    try:
        async with asyncio.timeout(PROGRAM_S_MAX):
            out, errors = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, f"{errors.decode()[-3_000:]}\n{out.decode()[-1_000:]}"
    return Output(out, errors)


async def seen_by(*command: str | Path, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The JSON object that the program prints as its last line."""
    out = (await run_program(*command, env=env)).out
    seen: dict[str, Any] = json.loads(out.splitlines()[-1])
    return seen
