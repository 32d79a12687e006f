"""One process at a time holds a file, and only as long as it lives."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nearcast.errors import SetupError
from nearcast.runtime.file_lock import file_lock, try_lock
from tests.processes import killed_at_the_end

HOLDING = """
import sys, time
from pathlib import Path
from nearcast.runtime.file_lock import file_lock
with file_lock(Path(sys.argv[1]), "a", "b", "c"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_another_is_told_who_holds_it_until_the_block_ends(tmp_path: Path) -> None:
    """What was expected, what came, which process, and what to do; then the file is free."""
    path = tmp_path / "journal-server-main"
    with file_lock(path, "no other server", "one that runs", "end it"):
        expected = rf"expected no other server, got one that runs \(process {os.getpid()}\); end it"
        with pytest.raises(SetupError, match=expected), file_lock(path, "no other server", "one that runs", "end it"):
            pytest.fail("it was held twice")
        with file_lock(tmp_path / "journal-server-north", "no other server", "one that runs", "end it"):
            pass
    with file_lock(path, "no other server", "one that runs", "end it"):
        assert f"{os.getpid()}\n" == path.read_text()


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    """The next one has it at once."""
    path = tmp_path / "lock"
    with (
        subprocess.Popen([sys.executable, "-c", HOLDING, str(path)], stdout=subprocess.PIPE) as process,
        killed_at_the_end(process),
    ):
        assert process.stdout
        assert b"held\n" == process.stdout.readline()
        with pytest.raises(SetupError, match=rf"process {process.pid}"), file_lock(path, "a", "b", "c"):
            pytest.fail("it was held twice")
        process.kill()
        process.wait()
        with file_lock(path, "a", "b", "c"):
            pass


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    """As what to do about it."""
    with (
        pytest.raises(SetupError, match="its folder must be writable"),
        file_lock(tmp_path / "gone" / "lock", "a", "b", "c"),
    ):
        pytest.fail("it was held")


def test_a_disk_without_locks_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That others would not be told is logged."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", flock)
    with file_lock(tmp_path / "lock", "a", "b", "c"):
        assert "another process would not be told" in caplog.text


def test_a_descriptor_that_another_process_inherits_holds_on(tmp_path: Path) -> None:
    """The file is free once the last of both has ended."""
    path = tmp_path / "lock"
    with file_lock(path, "a", "b", "c") as lock:
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    assert try_lock(path) is None
    process.communicate(b"\n")
    free = try_lock(path)
    assert free is not None
    os.close(free)


def test_who_insists_is_told_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would take for abandoned what is not."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(OSError, match="no locks"):
        try_lock(tmp_path / "lock", strict=True)
