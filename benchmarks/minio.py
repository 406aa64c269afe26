"""MinIO on this machine, with a bucket and a count of its PUT requests."""

from __future__ import annotations

import re
from pathlib import Path

import boto3
import httpx
from botocore.config import Config
from infra.loopback_ports import free_port
from infra.minio import MINIO, program

from benchmarks.processes import Child, Children

USER, PASSWORD, REGION, BUCKET = "tidelog-bench", "tidelog-bench-secret", "us-east-1", "bench"
PUT_PRICED = re.compile("Put|Copy|List|NewMultipart|CompleteMultipart", re.IGNORECASE)
"""How MinIO's names of these requests begin."""
HOW_TO_GET = f"MinIO is missing: {MINIO.how}"


def missing() -> str:
    """Say why MinIO cannot run here; empty if it can. Does not build it, because that takes minutes."""
    return "" if MINIO.find() else HOW_TO_GET


class Minio:
    """One server with its data under `folder`, on the disk under test."""

    def __init__(self, children: Children, folder: Path) -> None:
        self._children = children
        self._port = free_port()
        self.endpoint = f"http://127.0.0.1:{self._port}"
        env = {"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD, "MINIO_PROMETHEUS_AUTH_TYPE": "public"}
        command = [
            str(program()),
            "server",
            "--quiet",
            "--address",
            f"127.0.0.1:{self._port}",
            str(folder / "minio-data"),
        ]
        command += ["--console-address", f"127.0.0.1:{free_port()}"]
        self.process: Child = children.start("minio", command, env)
        self.process.wait_until(self._live)
        self._s3 = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=USER,
            aws_secret_access_key=PASSWORD,
            config=Config(s3={"addressing_style": "path"}, connect_timeout=5),
        )
        self._s3.create_bucket(Bucket=BUCKET)

    @property
    def env(self) -> dict[str, str]:
        """The usual AWS settings, for clients of this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": PASSWORD,
            "AWS_ALLOW_HTTP": "true",
        }

    def puts(self) -> int:
        """PUT requests so far, of every client."""
        return self._requests(re.compile("PutObject$"))

    def put_priced(self) -> int:
        """The requests so far, of every client, that S3 sells at the price of a PUT."""
        return self._requests(PUT_PRICED)

    def _requests(self, names: re.Pattern[str]) -> int:
        text = httpx.get(f"{self.endpoint}/minio/metrics/v3/api/requests", timeout=10, trust_env=False).text
        found = re.findall(r'^minio_api_requests_total\{[^}]*name="(\w+)"[^}]*\} (\S+)$', text, re.MULTILINE)
        return int(sum(float(count) for name, count in found if names.match(name)))

    def stop(self) -> None:
        self._children.stop(self.process)

    def _live(self) -> bool:
        try:
            return httpx.get(f"{self.endpoint}/minio/health/live", timeout=1, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False
