"""A file system of pyarrow that counts the bytes that are read of its files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSystemHandler, FileType, PyFileSystem


class _CountedFile(io.BytesIO):
    """`counts` gets the size of each read."""

    counts: list[int]

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(-1 if size is None else size)
        self.counts.append(len(data))
        return data


def counting_files() -> tuple[PyFileSystem, list[int]]:
    """Local files that can be read and nothing else, and the sizes of all reads so far."""
    counts: list[int] = []

    def opened(_handler: object, path: str) -> pa.NativeFile:
        file = _CountedFile(Path(path).read_bytes())
        file.counts = counts
        return pa.PythonFile(file, mode="r")

    def info(_handler: object, paths: list[str]) -> list[FileInfo]:
        return [FileInfo(path, FileType.File, size=Path(path).stat().st_size) for path in paths]

    def refused(*_: object) -> Any:
        raise NotImplementedError

    methods = dict.fromkeys(FileSystemHandler.__abstractmethods__, refused)  # type: ignore[attr-defined]
    reading = {"open_input_file": opened, "open_input_stream": opened, "get_file_info": info}
    handler = type("CountingFiles", (FileSystemHandler,), {**methods, **reading, "get_type_name": lambda _: "counting"})
    return PyFileSystem(handler()), counts
