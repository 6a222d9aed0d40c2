"""Compiled programs on disk: one file each, by the digest of what the program depends on.

A file is used only if it is this user's and nobody else may write to it, if it says the key that is asked for, and if
its content has the digest that it says: then it is what was written. Whatever else is there is as good as nothing.
A program that cannot be kept is compiled again next time; nothing here raises an error.
"""

import contextlib
import hashlib
import os
import stat
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import platformdirs

_MAGIC = b"spookax program 1\n"
_SUFFIX = ".program"
_GIB = 1 << 30
_USUAL_LIMIT = 1.0  # GiB
_ABANDONED = 3600.0  # age of a half-written file that nobody writes any more [s]

OFF = ("0", "off", "none")  # values of SPOOKAX_CACHE under which nothing is kept


class Store:
    """Programs in one folder, made when it is first needed; `limit`: bytes of all its files."""

    def __init__(self, folder: Path, limit: float):
        self.folder, self.limit = folder, limit

    def read(self, key: bytes) -> bytes | None:
        """What was written under a key (32 bytes), or None."""
        path = self._path(key)
        try:
            content = self._content(path)
            if content is None:
                return None
            head = len(_MAGIC)
            said, digest, body = content[head : head + 32], content[head + 32 : head + 64], content[head + 64 :]
            if content[:head] != _MAGIC or said != key or hashlib.sha256(body).digest() != digest:
                return None
            payload = zlib.decompress(body)
        except (OSError, zlib.error):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used: the ones that were not for longest go first
        return payload

    def write(self, key: bytes, payload: bytes) -> None:
        """Keep something under a key, in place of what is there."""
        body = zlib.compress(payload, 1)
        content = _MAGIC + key + hashlib.sha256(body).digest() + body
        if len(content) > self.limit:
            return
        half = None
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _own(self.folder.stat()):
                return
            number, half = tempfile.mkstemp(suffix=".half", dir=self.folder)  # readable by this user alone
            with open(number, "wb") as file:
                file.write(content)
            os.replace(half, self._path(key))
            half = None
            self._trim()
        except OSError:  # no permission, a full disk, a folder that was removed meanwhile
            pass
        finally:
            if half is not None:
                with contextlib.suppress(OSError):
                    os.unlink(half)

    def discard(self, key: bytes) -> None:
        """Remove what is kept under a key: it was of no use."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: bytes) -> Path:
        return self.folder / f"{key.hex()}{_SUFFIX}"

    def _content(self, path: Path) -> bytes | None:
        if not _own(self.folder.stat()):
            return None
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
        with open(number, "rb") as file:
            found = os.fstat(number)
            return file.read() if stat.S_ISREG(found.st_mode) and _own(found) else None

    def _trim(self) -> None:
        """Remove the programs that were not used for longest, until the rest is within the limit."""
        files, total = [], 0
        for file in self.folder.iterdir():
            try:
                found = file.stat()
            except OSError:
                continue
            if file.suffix == _SUFFIX:
                files.append((found.st_mtime, found.st_size, file))
                total += found.st_size
            elif file.suffix == ".half" and time.time() - found.st_mtime > _ABANDONED:
                file.unlink(missing_ok=True)
        for _, size, file in sorted(files):
            if total <= self.limit:
                return
            file.unlink(missing_ok=True)
            total -= size


def _own(found: os.stat_result) -> bool:
    """Whether a file or folder is this user's, and nobody else may write to it."""
    if not hasattr(os, "getuid"):  # Windows: folders of a user are theirs
        return True
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def store() -> Store | None:
    """Where programs are kept: in the folder that SPOOKAX_CACHE names or else in the user's cache folder; None where
    SPOOKAX_CACHE is one of `OFF`. SPOOKAX_CACHE_GIB is the limit of all of them.
    """
    named = os.environ.get("SPOOKAX_CACHE", "")
    if named.lower() in OFF:
        return None
    try:
        limit = float(os.environ.get("SPOOKAX_CACHE_GIB", _USUAL_LIMIT))
    except ValueError:
        limit = _USUAL_LIMIT
    usual = Path(platformdirs.user_cache_dir("spookax"), "programs")
    return Store(Path(named).expanduser() if named else usual, limit * _GIB)


@contextlib.contextmanager
def nothing_kept() -> Iterator[None]:
    """Under it programs are neither read nor kept."""
    before = os.environ.get("SPOOKAX_CACHE")
    os.environ["SPOOKAX_CACHE"] = OFF[0]
    try:
        yield
    finally:
        if before is None:
            del os.environ["SPOOKAX_CACHE"]
        else:
            os.environ["SPOOKAX_CACHE"] = before
