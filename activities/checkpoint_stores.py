"""Where checkpoints are kept: a folder, or a bucket of S3; listed and read with bounds.

Used by `activities.checkpoints`, in threads, since both block. What may not be read is told apart from what is not
there: a store that refuses says nothing of what it holds.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote, urlparse

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from sickbay.checkpoints.model import CheckpointPlace
from sickbay.checkpoints.tree import Entry, Want

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

READERS: Final = 16
"""Files that are read at once."""
PIECE: Final = 8 << 20
_ATTEMPT: Final = "{attempt}"
_NOT_THERE: Final = frozenset({"NoSuchKey", "404", "NotFound"})
_DENIED: Final = frozenset(
    {"AccessDenied", "403", "AllAccessDisabled", "Forbidden", "KMS.AccessDeniedException", "InvalidObjectState"}
)
_CREDENTIALS: Final = frozenset({"ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"})


class StoreError(Exception):
    """The store did not answer, or refused; the message names the place and the cure."""


class Store(Protocol):
    """A place of checkpoints."""

    def entries(self) -> Iterator[Entry]:
        """Every file below it. Raises StoreError."""
        ...

    def read(self, want: Want, size: int) -> bytes | None:
        """What is wanted of a file of that size; None if it is gone. Raises StoreError."""
        ...

    def sha256(self, path: str) -> str:
        """The checksum of a file. Raises StoreError."""
        ...

    def exists(self) -> bool:
        """Whether a file of exactly this place's name is there. Raises StoreError."""
        ...


def store_of(url: str, place: CheckpointPlace) -> Store:
    """The store of a URL of that place. Raises StoreError for one that cannot be used."""
    try:
        parts = urlparse(url)
    except ValueError as error:
        raise StoreError(f"{url[:200]}: {error}; write a folder or s3://bucket/prefix") from error
    if parts.scheme == "s3":
        if not parts.netloc:
            raise StoreError(f"{url} names no bucket; write s3://bucket/prefix")
        # A key may hold what a URL takes for a query.
        return BucketStore(parts.netloc, url.partition("://")[2].partition("/")[2].strip("/"), place)
    if parts.scheme == "file":
        return FolderStore(Path(unquote(parts.path)), _fixed_part(Path(unquote(urlparse(place.url).path))))
    if "://" not in url:
        return FolderStore(Path(url), _fixed_part(Path(place.url)))
    raise StoreError(f"{url}: {parts.scheme}:// cannot be read; use a folder or s3://bucket/prefix")


def _fixed_part(path: Path) -> Path:
    """The folder that must be there before any attempt writes: the parent of what attempts make."""
    made = next((each for each in (path, *path.parents)[::-1] if _ATTEMPT in each.name), path)
    return made.parent


class FolderStore:
    """A folder of this machine, or of a file system that it mounts."""

    def __init__(self, root: Path, must_be_there: Path) -> None:
        self._root = root
        self._must_be_there = must_be_there

    def entries(self) -> Iterator[Entry]:
        """Every file. Links to files are followed, links to folders are not: they point to what is listed already."""
        if not _is_there(self._root):
            if not _is_there(self._must_be_there):
                raise StoreError(f"{self._must_be_there} is not there: is the file system mounted here?")
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
                if stat.S_ISREG(found.st_mode):
                    modified = datetime.fromtimestamp(found.st_mtime, UTC)
                    yield Entry(path.relative_to(self._root).as_posix(), found.st_size, modified)
        # A folder that was removed while it was listed is only gone.
        if lasting := [error for error in refused if not isinstance(error, FileNotFoundError)]:
            raise _refused(lasting[0], self._root)

    def read(self, want: Want, size: int) -> bytes | None:
        """All of it, its first or its last bytes."""
        try:
            with (self._root / want.path).open("rb") as file:
                if want.whole or size <= want.first + want.last:
                    return file.read(size)
                first = file.read(want.first)
                if want.last:
                    file.seek(-min(want.last, size), os.SEEK_END)
                return first + (file.read(want.last) if want.last else b"")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refused(error, self._root / want.path) from error

    def sha256(self, path: str) -> str:
        """By pieces."""
        try:
            with (self._root / path).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise _refused(error, self._root / path) from error

    def exists(self) -> bool:
        """A file or a folder."""
        return _is_there(self._root)


def _is_there(path: Path) -> bool:
    """Whether a path exists; unlike `Path.exists`, what may not be looked at is not absent. Raises StoreError."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise _refused(error, path) from error
    return True


def _refused(error: OSError | ValueError, path: Path) -> StoreError:
    where = getattr(error, "filename", None) or path
    cure = "; let us read it" if isinstance(error, PermissionError) else ""
    return StoreError(f"{where}: {getattr(error, 'strerror', None) or error}{cure}")


class BucketStore:
    """A prefix of a bucket."""

    def __init__(self, bucket: str, prefix: str, place: CheckpointPlace) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._key = prefix
        config = Config(
            connect_timeout=5,
            read_timeout=20,
            retries={"mode": "standard", "max_attempts": 4},
            max_pool_connections=READERS,
            # Other stores than AWS's rarely have a name for each bucket.
            s3={"addressing_style": "path"} if place.endpoint else None,
        )
        try:
            self._client: S3Client = boto3.client(
                "s3", region_name=place.region or None, endpoint_url=place.endpoint or None, config=config
            )
        except (BotoCoreError, ValueError) as error:
            raise StoreError(f"s3://{bucket}: {' '.join(str(error).split())}") from error

    def entries(self) -> Iterator[Entry]:
        """Every object, a thousand a call, however many there are."""
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            for page in pages:
                for item in page.get("Contents", ()):
                    path = item["Key"][len(self._prefix) :]
                    if path and not path.endswith("/"):
                        yield Entry(path, item["Size"], item["LastModified"])
        except (ClientError, BotoCoreError) as error:
            raise self._told(error, self._key, "s3:ListBucket") from error

    def read(self, want: Want, size: int) -> bytes | None:
        """All of it, its first or its last bytes, by range."""
        if size == 0:
            return b""
        if want.whole or size <= want.first + want.last:
            return self._range(want.path, f"bytes=0-{size - 1}")
        first = self._range(want.path, f"bytes=0-{want.first - 1}") if want.first else b""
        last = self._range(want.path, f"bytes=-{want.last}") if want.last else b""
        return None if first is None or last is None else first + last

    def sha256(self, path: str) -> str:
        """By pieces."""
        digest = hashlib.sha256()
        try:
            body = self._client.get_object(Bucket=self._bucket, Key=self._prefix + path)["Body"]
            for piece in body.iter_chunks(PIECE):
                digest.update(piece)
        except (ClientError, BotoCoreError) as error:
            raise self._told(error, self._prefix + path, "s3:GetObject") from error
        return digest.hexdigest()

    def exists(self) -> bool:
        """An object of exactly this name."""
        try:
            self._client.head_object(Bucket=self._bucket, Key=self._key)
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and _code(error) in _NOT_THERE:
                return False
            # Without the right to list, S3 refuses what is not there too.
            raise self._told(error, self._key, "s3:GetObject and s3:ListBucket") from error
        return True

    def _range(self, path: str, wanted: str) -> bytes | None:
        try:
            return self._client.get_object(Bucket=self._bucket, Key=self._prefix + path, Range=wanted)["Body"].read()
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and _code(error) in _NOT_THERE | {"InvalidRange"}:
                return None
            raise self._told(error, self._prefix + path, "s3:GetObject") from error

    def _told(self, error: ClientError | BotoCoreError, key: str, right: str) -> StoreError:
        where = f"s3://{self._bucket}/{key}"
        if not isinstance(error, ClientError):
            cure = "" if isinstance(error, HTTPClientError) else "; check credentials and region"
            return StoreError(f"{where}: {' '.join(str(error).split())[:300]}{cure}")
        code = _code(error)
        if code in _DENIED:
            return StoreError(f"{where}: access is denied ({code}); grant {right} on it")
        if code in _CREDENTIALS:
            return StoreError(f"{where}: the credentials are not accepted ({code}); renew them")
        if code == "NoSuchBucket":
            return StoreError(f"{where}: there is no bucket of this name; correct the URL")
        return StoreError(f"{where}: S3 answered {code or 'an error without a code'}")


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
