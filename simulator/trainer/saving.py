"""Checkpoints of the trainer: a folder with its arrays, and a manifest that is written last, in a folder or in S3."""

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import ParseResult, urlparse

import numpy as np

MANIFEST: Final = "manifest.json"
WEIGHTS: Final = "weights.npz"


class BrokenCheckpointError(Exception):
    """It cannot be read; the message is what a real trainer would print."""


def save(url: str, step: int, weights: np.ndarray[Any, Any], *, attempt: int, world: int) -> None:
    """Write one checkpoint; without its manifest it is none."""
    buffer = io.BytesIO()
    np.savez(buffer, weights=weights)
    data = buffer.getvalue()
    folder = f"step-{step:08d}"
    entry = {"path": WEIGHTS, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest = {"step": step, "attempt": attempt, "world": world, "files": [entry]}
    _put(url, f"{folder}/{WEIGHTS}", data)
    _put(url, f"{folder}/{MANIFEST}", json.dumps(manifest).encode())


def load(path: str, step: int) -> np.ndarray[Any, Any]:
    """The weights of a checkpoint. Raises BrokenCheckpointError."""
    try:
        manifest = json.loads(_get(f"{path}/{MANIFEST}"))
        data = _get(f"{path}/{WEIGHTS}")
        told = manifest["step"], manifest["files"][0]["sha256"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BrokenCheckpointError(f"PytorchStreamReader failed reading {path}: {error!r}") from error
    if told != (step, hashlib.sha256(data).hexdigest()):
        raise BrokenCheckpointError("PytorchStreamReader failed reading zip archive: checksum differs")
    weights: np.ndarray[Any, Any] = np.load(io.BytesIO(data))["weights"]
    return weights


def _put(url: str, name: str, data: bytes) -> None:
    parts = urlparse(url)
    if parts.scheme == "s3":
        _s3().put_object(Bucket=parts.netloc, Key=f"{parts.path.strip('/')}/{name}", Body=data)
        return
    target = _folder(parts) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.tmp")
    scratch.write_bytes(data)
    scratch.replace(target)


def _get(path: str) -> bytes:
    parts = urlparse(path)
    if parts.scheme == "s3":
        try:
            body: bytes = _s3().get_object(Bucket=parts.netloc, Key=parts.path.strip("/"))["Body"].read()
        except Exception as error:
            raise OSError(str(error)) from error
        return body
    return _folder(parts).read_bytes()


def _folder(url: ParseResult) -> Path:
    """A path, or the one of a `file://` URL."""
    return Path(url.path if url.scheme == "file" else url.geturl())


def _s3() -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        region_name="eu-west-1",
        endpoint_url=os.environ.get("TRAINER_S3_ENDPOINT") or None,
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 4}),
    )
