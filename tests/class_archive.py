"""Java's classes in one file, which every Java of the tests maps: to read and check them is a third of Spark's start.

    python -m tests.class_archive FILE

The file belongs to one Java and one Spark. Where it is not there, or of others, Java reads classes as it always does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a Java that ends before thorough compilation, and threads that collect garbage side by side, pay."""


def archive_in(folder: Path) -> Path:
    """The file for this environment's Spark and this machine's Java."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.realpath(Path(home, "bin", "java") if home else shutil.which("java") or "packaged")
    changed = os.stat(java).st_mtime_ns if os.path.exists(java) else 0
    name = hashlib.sha256(f"{sys.prefix} {version('pyspark')} {java} {changed}".encode()).hexdigest()[:12]
    return folder / f"spark-{name}.jsa"


def reading(archive: Path) -> str:
    """Options of a Java that maps the file if it can, and says nothing if it cannot."""
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={archive} -Xlog:cds*=off"


def making(archive: Path) -> subprocess.Popen[bytes]:
    """A process that makes the file beside the tests; a Java that starts before it is there does without it."""
    command = [sys.executable, "-m", "tests.class_archive", str(archive)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=Path(__file__).parents[1], stdin=quiet, stdout=quiet, stderr=quiet)


def main(archive: Path) -> None:
    """Runs what most tests run of Spark, and lets its Java write the classes down as it ends."""
    part = archive.with_suffix(f".{os.getpid()}")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={part} -Xlog:cds*=off"
    from nearcast.pipeline.spark_session import session

    spark = session("local[2]")
    java = spark.sparkContext._gateway.proc
    ran = False
    try:
        with tempfile.TemporaryDirectory() as folder:
            exercise(spark, Path(folder))
        ran = True
    except Exception:
        traceback.print_exc()
    spark.stop()
    java.stdin.close()
    # Only what is whole gets its name: a Java that maps half a file dies.
    if java.wait() == 0 and ran:
        part.replace(archive)
    part.unlink(missing_ok=True)
    # Without what ends Spark once more, which would find no Java.
    os._exit(0 if ran else 1)


def exercise(spark: SparkSession, folder: Path) -> None:
    """A live query on a small journal; rows that go to Python and back, into files, and are counted and joined."""
    from nearcast.journal.sqlite import SqliteJournal
    from nearcast.pipeline.query import start
    from tests.journal.rows import events

    with closing(SqliteJournal(folder / "some.journal")) as journal:
        journal.append("events", events(range(20)))
        seen = threading.Event()
        running = start(spark, journal.path, lambda: bool(seen.set()))
        assert seen.wait(60), "a query that says that something is new"
        running.stop()
    rows = spark.range(100).selectExpr("id", "id % 7 AS kind", "string(id) AS name")
    rows.mapInArrow(lambda parts: parts, rows.schema).write.parquet(str(folder / "rows"))
    read = spark.read.parquet(str(folder / "rows"))
    read.join(read.groupBy("kind").count(), "kind").orderBy("name").toArrow()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
