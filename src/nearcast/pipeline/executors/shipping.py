"""nearcast's own code on its way to workers that lack it."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from pyspark.sql import SparkSession

import nearcast


def ship(spark: SparkSession) -> str:
    """Sends the package, as a zip archive of some 600 KB, to every worker of a session; gives the archive's path.

    Workers import from it what a job asks for. What nearcast rests on (NumPy, Arrow, Numba, Shapely, pyproj, orjson)
    is not in it: that must be in the workers' Python. Calling it again changes nothing.

    Call it before `match` or `deliveries`: what a DataFrame needs on its workers is settled when it is made.
    """
    archive = _archive()
    if "connect" in type(spark).__module__:
        spark.addArtifacts(archive, pyfile=True)
    else:
        spark.sparkContext.addPyFile(archive)
    return archive


@cache
def _archive() -> str:
    """The archive of this version, which stays while this process does: workers that start later fetch it, too."""
    folder = Path(tempfile.mkdtemp(prefix="nearcast-ship-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    found = sorted(_modules(files("nearcast"), "nearcast"))
    digest = hashlib.sha256(b"".join(content for _, content in found)).hexdigest()[:12]
    path = folder / f"nearcast-{nearcast.__version__}-{digest}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in found:
            # With a date of its own the same code would be another archive.
            file.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return str(path)


def _modules(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _modules(one, f"{name}/{one.name}")
        elif one.name.endswith((".py", ".properties")):
            yield f"{name}/{one.name}", one.read_bytes()
