"""Who waits on this machine is woken at once, by whatever process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nearcast.runtime.wakeups import Sleeper, WakeUps


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of which there is news."""
    path = tmp_path / "some"
    path.touch()
    return path


def sleeping(file: Path) -> Sleeper:
    """One who waits."""
    found = WakeUps(str(file)).sleeper()
    assert found
    return found


def test_all_who_wait_are_woken_and_signs_wait_for_who_comes_later(file: Path) -> None:
    """Each once, however many signs came."""
    one, other, wakeups = sleeping(file), sleeping(file), WakeUps(str(file))
    assert b"" == one.wait(0)
    waking = threading.Timer(0.05, wakeups.wake, [b"a"])
    waking.start()
    assert b"a" == one.wait(30)
    waking.join()
    wakeups.wake(b"b")
    assert [b"b", b"ab", b""] == [one.wait(30), other.wait(30), other.wait(0)]


def test_another_process_wakes(file: Path) -> None:
    """Which need not know who waits."""
    one = sleeping(file)
    code = f"from nearcast.runtime.wakeups import WakeUps; WakeUps({str(file)!r}).wake(b'x')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert b"x" == one.wait(30)


def test_the_folder_goes_with_the_last_who_waits(file: Path) -> None:
    """And nothing is made where nobody does."""
    wakeups, one, other = WakeUps(str(file)), sleeping(file), sleeping(file)
    one.close()
    assert 2 == len(list(file.parent.iterdir()))
    other.close()
    wakeups.wake(b"x")
    assert [file] == list(file.parent.iterdir())


def test_the_pipe_of_a_process_that_is_gone_is_removed(file: Path) -> None:
    """With the next sign; those of others stay."""
    one = sleeping(file)
    os.mkfifo(one.path.with_name("gone"))
    WakeUps(str(file)).wake(b"x")
    assert [one.path] == list(one.path.parent.iterdir())


def test_a_full_pipe_holds_up_nobody(file: Path) -> None:
    """Who waits there is awake."""
    one = sleeping(file)
    writer = os.open(one.path, os.O_WRONLY | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4_096)
    WakeUps(str(file)).wake(b"x")
    os.close(writer)
    assert one.wait(0)


def test_nothing_but_pipes_is_written(file: Path) -> None:
    """Whatever stands in the folder."""
    one = sleeping(file)
    other, link = one.path.with_name("other"), one.path.with_name("link")
    other.write_bytes(b"")
    link.symlink_to(file)
    WakeUps(str(file)).wake(b"x")
    assert (b"", b"", b"x") == (other.read_bytes(), file.read_bytes(), one.wait(0))


def test_where_no_pipe_can_be_made_nobody_sleeps(file: Path) -> None:
    """And nobody is disturbed."""
    Path(f"{file}-waiting").touch()
    wakeups = WakeUps(str(file))
    assert wakeups.sleeper() is None
    wakeups.wake(b"x")


def test_a_process_that_ends_leaves_no_pipe(file: Path) -> None:
    """Also where nobody closed it."""
    code = f"from nearcast.runtime.wakeups import WakeUps; waits = WakeUps({str(file)!r}).sleeper(); assert waits"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert [file] == list(file.parent.iterdir())
