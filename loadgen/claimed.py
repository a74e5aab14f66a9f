"""A results folder in a command's hands: made its own, nobody else's meanwhile, cleared of what a kill left.

Owns what may lie in such a folder and count for nothing. What is written there, and how, is `store`'s.
"""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from loadgen.dataset import REQUESTS_FILE, TEXT_STREAMS, point_files, reported, streams
from loadgen.errors import ConfigError
from loadgen.store import CONTENTS, FOLDER_TRIES_MAX, LEDGER, RESERVE, TEXTS, sync

DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
# What `store` writes to before it renames.
WRITTEN = ("requests", "health", "text", "point", "launch", "runs", "server_metrics")
TEMPORARY = tuple(f".{name}*.tmp" for name in WRITTEN)
MARKS = ".mark-*"  # by which workers know the disk; see store.mark
RESERVE_BYTES = 512 * 1024  # point.json and its ledger line take 20 KB, with the end of a server's log 50


def claim(folder: Path, chosen_by_user: bool = False) -> Path:
    """Make a results folder ours by creating its ledger; two runs never get the same one.

    A folder of our own choosing that is taken becomes `<folder>-2`, `-3`, ...; one chosen by the user is a ConfigError.
    """
    for number in range(1, 2 if chosen_by_user else FOLDER_TRIES_MAX):
        candidate = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        with reported(candidate):
            candidate.mkdir(parents=True, exist_ok=True)
            try:
                os.close(os.open(candidate / LEDGER, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            except FileExistsError:
                continue
            sync(candidate)
            sync(candidate.parent)
        return candidate
    raise _taken(folder)


def make(folder: Path) -> None:
    """Make a run's folder in a results folder. Raises StorageError."""
    with reported(folder):
        folder.mkdir(parents=True, exist_ok=True)
        sync(folder.parent)


def refuse_taken(folder: Path) -> None:
    """Raise ConfigError where a run has already claimed `folder`."""
    if (folder / LEDGER).exists():
        raise _taken(folder)


def _taken(folder: Path) -> ConfigError:
    return ConfigError(f"{folder} already holds results; choose another folder, or resume=true to go on in it")


def remove_empty(root: Path | None, folders: Iterable[Path]) -> None:
    """Take away the folders that were made for runs that never began, and the day's folder; only empty ones."""
    candidates = [*folders, *([root] if root else [])]
    if root and DAY.fullmatch(root.parent.name):
        candidates.append(root.parent)
    for folder in candidates:
        with contextlib.suppress(OSError):  # not empty, or never made
            folder.rmdir()


@contextlib.contextmanager
def held(root: Path) -> Iterator[None]:
    """Hold the folder for the length of the block, with room for last words on its disk.

    Raises ConfigError where another command measures into it right now. The system lets go of what a kill ends.
    """
    with reported(root / LEDGER):
        descriptor = os.open(root / LEDGER, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        _lock(descriptor, root)
        _reserve(root)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                (root / RESERVE).unlink()
    finally:
        os.close(descriptor)


def _lock(descriptor: int, root: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"another command is measuring into {root}; wait for its end, or choose another folder"
        ) from None
    except OSError:
        pass  # a file system without locks: its users keep apart by themselves, as they have to with all else there


def sweep(root: Path) -> None:
    """Take away what a kill left half-made of this command: no reader counts it, but a glob over all Parquet would.

    Rows and texts of a Point that has no tables stay in its workers' streams.
    """
    for pattern in (*TEMPORARY, MARKS):
        _remove(path for path in root.rglob(pattern) if belongs(path, root))
    committed = {path.parent for path in point_files(root)}
    for folder in {stream.parent for stream in streams(root) if belongs(stream, root)}:
        if folder not in committed:  # its rows, and texts where they were asked for, are in its streams
            texts = any(folder.glob(TEXT_STREAMS))
            _remove(folder / name for name in CONTENTS if texts or name != TEXTS)
        elif (folder / REQUESTS_FILE).is_file():  # a full disk took no table: these are the only rows
            _remove(streams(folder))


def belongs(path: Path, root: Path) -> bool:
    """Whether a file below `root` is of its command, and not of another one that has a folder of its own there."""
    return root_of(path) == root


def root_of(path: Path) -> Path | None:
    """The folder of the command to which a file belongs: the nearest above it with a ledger."""
    return next((place for place in path.parents if (place / LEDGER).is_file()), None)


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        with reported(path, "clean"):
            path.unlink(missing_ok=True)


def _reserve(root: Path) -> None:
    """Take room on the disk, in bytes that no file system stores as less; on one that is full already there is none."""
    path = root / RESERVE
    try:
        with path.open("wb") as file:
            file.write(os.urandom(RESERVE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
