"""The option that names the bucket, of jobs that work on it without a broker."""

from __future__ import annotations

from argparse import ArgumentParser


def add_store_option(parser: ArgumentParser) -> None:
    """Add ``--store``."""
    parser.add_argument(
        "--store",
        required=True,
        metavar="URL",
        help="the bucket as all executors reach it: s3://BUCKET/PREFIX, or file:///PATH on a shared disk",
    )
