"""What Spark carries to another machine is one file there, by its checksum, that only its user can write."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.core.broadcast import Broadcast

from nearcast.errors import SetupError
from nearcast.pipeline.executors import shared_files
from nearcast.pipeline.executors.shared_files import KEPT, SharedFile, checksum_of, content_of, located, receive


@pytest.fixture(autouse=True)
def another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Its temporary folder, and a process that has read nothing yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shared_files._verified.cache_clear()
    yield
    receive({})
    shared_files._verified.cache_clear()


def carried(folder: Path, content: bytes) -> tuple[SharedFile, Broadcast[bytes]]:
    """A file as a worker is told of it, and its content as Spark lays it down beside the worker."""
    file = SharedFile("/of/the/driver", checksum_of(content))
    path = folder / f"broadcast-{file.checksum}"
    path.write_bytes(pickle.dumps(content))
    return file, Broadcast(path=str(path))


def test_a_file_of_this_machine_is_read_where_it_lies(tmp_path: Path) -> None:
    """Nothing is carried, written or summed."""
    (tmp_path / "file").write_bytes(b"content")
    file = SharedFile(str(tmp_path / "file"))
    assert (tmp_path / "file", b"content") == (located(file), content_of(file))
    assert ["file"] == os.listdir(tmp_path)


def test_what_is_carried_is_written_once_and_found_by_the_next_process(tmp_path: Path) -> None:
    """Of the driver's path nothing is needed; the second process takes nothing from Spark."""
    file, broadcast = carried(tmp_path, b"content")
    receive({file.checksum: broadcast})
    place = located(file)
    assert b"content" == content_of(file) == place.read_bytes()
    receive({})
    shared_files._verified.cache_clear()
    assert place == located(file)
    assert 0o700 == place.parent.stat().st_mode & 0o777


@pytest.mark.parametrize("wrong", [b"", b"contenu", None])
def test_what_is_not_as_it_was_or_gone_is_written_again(tmp_path: Path, wrong: bytes | None) -> None:
    """A process that begins holds each file against its checksum; one that is gone is missed by any."""
    file, broadcast = carried(tmp_path, b"content")
    receive({file.checksum: broadcast})
    place = located(file)
    if wrong is None:
        place.unlink()
    else:
        place.write_bytes(wrong)
        shared_files._verified.cache_clear()
    assert b"content" == located(file).read_bytes()


def test_a_machine_keeps_the_files_that_were_used_last(tmp_path: Path) -> None:
    """However many came."""
    all_of_them = [carried(tmp_path, f"content {number}".encode()) for number in range(KEPT + 5)]
    receive({file.checksum: broadcast for file, broadcast in all_of_them})
    first = located(all_of_them[0][0])
    os.utime(first, (0, 0))
    for file, _ in all_of_them[1:]:
        located(file)
    kept = {path.name for path in first.parent.iterdir()}
    assert KEPT == len(kept)
    assert all_of_them[-1][0].checksum in kept and first.name not in kept


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """What lies in it would be run."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"nearcast-shared-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    file, broadcast = carried(tmp_path, b"content")
    receive({file.checksum: broadcast})
    with pytest.raises(SetupError, match="a folder of this user, got a link"):
        located(file)
