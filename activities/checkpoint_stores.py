"""Where checkpoints are kept: a folder, or a bucket of S3; listed and read with bounds.

Used by `activities.checkpoints`, in a thread, since both block. What may not be read is told apart from what is not
there: a store that refuses says nothing of what it holds.
"""

import hashlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlparse

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from sickbay.checkpoints.model import CheckpointPlace
from sickbay.checkpoints.tree import SMALL, Entry, Want

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

FILES_MOST: Final = 1_000_000
"""Files of one place that are listed; beyond it the listing is not complete."""
PIECE: Final = 8 << 20
_CALLS: Final = Config(
    connect_timeout=5, read_timeout=20, retries={"mode": "standard", "max_attempts": 4}, s3={"addressing_style": "path"}
)
_NOT_THERE: Final = frozenset({"NoSuchKey", "404", "NotFound"})
_DENIED: Final = frozenset({"AccessDenied", "403", "AllAccessDisabled", "Forbidden"})


class StoreError(Exception):
    """The store did not answer, or refused; the message names the place and the cure. `denied` if it refused."""

    def __init__(self, message: str, *, denied: bool = False) -> None:
        super().__init__(message)
        self.denied = denied


class Store(Protocol):
    """A place of checkpoints."""

    def entries(self) -> Iterator[Entry]:
        """Every file below it. Raises StoreError."""
        ...

    def read(self, want: Want) -> bytes | None:
        """What is wanted of a file; None if it cannot be had."""
        ...

    def sha256(self, path: str) -> str:
        """The checksum of a file. Raises StoreError."""
        ...

    def exists(self) -> bool:
        """Whether a file of exactly this place's name is there. Raises StoreError."""
        ...


def store_of(url: str, place: CheckpointPlace) -> Store:
    """The store of a URL. Raises StoreError for one that cannot be used."""
    parts = urlparse(url)
    if parts.scheme == "s3":
        if not parts.netloc:
            raise StoreError(f"{url} names no bucket; write s3://bucket/prefix")
        return BucketStore(parts.netloc, parts.path.strip("/"), place)
    if parts.scheme in ("", "file"):
        return FolderStore(Path(parts.path if parts.scheme else url))
    raise StoreError(f"{url}: {parts.scheme}:// cannot be read; use a folder or s3://bucket/prefix")


class FolderStore:
    """A folder of this machine, or of a file system that it mounts."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def entries(self) -> Iterator[Entry]:
        """Every file; links are followed, once."""
        if not self._root.exists():
            if not self._root.parent.exists():
                raise StoreError(f"{self._root.parent} is not there: is the file system mounted here?")
            return
        refused: list[OSError] = []
        for folder, _, names in os.walk(self._root, onerror=refused.append):
            for name in names:
                path = Path(folder) / name
                try:
                    found = path.stat()
                except FileNotFoundError:
                    continue
                except OSError as error:
                    refused.append(error)
                    continue
                modified = datetime.fromtimestamp(found.st_mtime, UTC)
                yield Entry(path=path.relative_to(self._root).as_posix(), size=found.st_size, modified=modified)
        if refused:
            raise StoreError(f"{refused[0].filename}: {refused[0].strerror}; let us read it", denied=True)

    def read(self, want: Want) -> bytes | None:
        """All of it, its first or its last bytes."""
        try:
            with (self._root / want.path).open("rb") as file:
                if want.last:
                    size = file.seek(0, os.SEEK_END)
                    file.seek(max(0, size - want.last))
                    return file.read()
                return file.read(want.first or SMALL)
        except OSError:
            return None

    def sha256(self, path: str) -> str:
        """By pieces."""
        try:
            with (self._root / path).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error

    def exists(self) -> bool:
        """A file or a folder."""
        try:
            return self._root.exists()
        except OSError as error:
            raise StoreError(f"{self._root}: {error.strerror}", denied=isinstance(error, PermissionError)) from error


class BucketStore:
    """A prefix of a bucket."""

    def __init__(self, bucket: str, prefix: str, place: CheckpointPlace) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._key = prefix
        self._client: S3Client = boto3.client(
            "s3", region_name=place.region or None, endpoint_url=place.endpoint or None, config=_CALLS
        )

    def entries(self) -> Iterator[Entry]:
        """Every object, a thousand a call, however many there are."""
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            for page in pages:
                for item in page.get("Contents", ()):
                    path = item["Key"][len(self._prefix) :]
                    if path and not path.endswith("/"):
                        yield Entry(path=path, size=item["Size"], modified=item["LastModified"])
        except ClientError as error:
            raise self._told(error, "s3:ListBucket") from error
        except BotoCoreError as error:
            raise StoreError(f"s3://{self._bucket}: {' '.join(str(error).split())}") from error

    def read(self, want: Want) -> bytes | None:
        """All of it, its first or its last bytes, by range."""
        byte_range = f"bytes=-{want.last}" if want.last else f"bytes=0-{(want.first or SMALL) - 1}"
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + want.path, Range=byte_range)
            return answer["Body"].read()
        except ClientError as error:
            # An empty object has no range.
            return b"" if error.response.get("Error", {}).get("Code") == "InvalidRange" else None
        except BotoCoreError:
            return None

    def sha256(self, path: str) -> str:
        """By pieces."""
        digest = hashlib.sha256()
        try:
            body = self._client.get_object(Bucket=self._bucket, Key=self._prefix + path)["Body"]
            for piece in body.iter_chunks(PIECE):
                digest.update(piece)
        except ClientError as error:
            raise self._told(error, "s3:GetObject") from error
        except BotoCoreError as error:
            raise StoreError(f"s3://{self._bucket}/{self._prefix}{path}: {' '.join(str(error).split())}") from error
        return digest.hexdigest()

    def exists(self) -> bool:
        """An object of exactly this name."""
        try:
            self._client.head_object(Bucket=self._bucket, Key=self._key)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _NOT_THERE:
                return False
            raise self._told(error, "s3:GetObject") from error
        except BotoCoreError as error:
            raise StoreError(f"s3://{self._bucket}/{self._key}: {' '.join(str(error).split())}") from error
        return True

    def _told(self, error: ClientError, right: str) -> StoreError:
        code = error.response.get("Error", {}).get("Code", "")
        where = f"s3://{self._bucket}/{self._key}"
        if code in _DENIED:
            return StoreError(f"{where}: access is denied; grant {right} to the controller", denied=True)
        if code == "NoSuchBucket":
            return StoreError(f"{where}: there is no such bucket; correct the URL", denied=True)
        return StoreError(f"{where}: {code}")
