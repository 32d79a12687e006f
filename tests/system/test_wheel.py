"""What is built and installed works by itself: the wheel, in an environment that knows nothing of this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

import nearcast
from tests.docs.pages import ROOT, agrees, blocks, commands

NEEDED = ("nearcast/py.typed", "nearcast/pipeline/log4j2.properties", "nearcast/pipeline/log4j2-file.properties")
SECONDS = 900.0
"""How long one command may take: installing everything from a registry is the longest."""

BUILD_SDIST = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints to both its outputs; it sees no path of this checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NEARCAST_", "PYTHON"))}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution, and that from a copy: the checkout gets no build folders."""
    folder = tmp_path_factory.mktemp("build")
    copy, sources, wheels = folder / "checkout", folder / "sources", folder / "wheels"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    run(sys.executable, "-c", BUILD_SDIST, sources, cwd=copy)
    [archive] = sources.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(sources, filter="data")
    unpacked = sources / archive.name.removesuffix(".tar.gz")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", wheels, unpacked, cwd=folder)
    [built] = wheels.glob("*.whl")
    return built


def pip(*words: str | Path, cwd: Path) -> None:
    """Runs this environment's pip."""
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words, cwd=cwd)


def environment(folder: Path) -> Path:
    """An empty virtual environment; its interpreter."""
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


def try_out(python: Path, folder: Path) -> None:
    """From an empty folder: the version, the imports, and what the README checks and replays."""
    folder.mkdir()
    found = run(python, "-c", "import nearcast, nearcast.client; print(nearcast.__file__)", cwd=folder).strip()
    assert Path(found).is_relative_to(python.parents[1])
    command = python.with_name("nearcast")
    assert run(command, "--version", cwd=folder).strip() == f"nearcast, version {nearcast.__version__}"
    tried = []
    for block in blocks(ROOT / "README.md"):
        if block.name:
            (folder / block.name).write_text(block.text, encoding="utf-8")
        for text, shown in commands(block) if block.kind == "console" else ():
            words = text.split()
            if words[:2] in (["nearcast", "check"], ["nearcast", "replay"]):
                tried.append(words[1])
                printed = run(command, *words[1:], cwd=folder)
                assert agrees(shown, printed), f"$ {text}\nshown:\n{shown}\nprinted:\n{printed}"
    assert {"check", "replay"} == set(tried)


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    """The package with its data, the licence; no tests, benchmarks or experiments beside it."""
    with ZipFile(wheel) as packed:
        names = set(packed.namelist())
        [metadata] = (packed.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    assert set(NEEDED) <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    info = f"nearcast-{nearcast.__version__}.dist-info"
    assert {"nearcast", info} == {name.partition("/")[0] for name in names}
    modules = {
        f"nearcast/{path.relative_to(ROOT / 'src' / 'nearcast').as_posix()}"
        for path in (ROOT / "src" / "nearcast").rglob("*.py")
    }
    assert modules == {name for name in names if name.endswith(".py")}
    assert "License-Expression: Apache-2.0" in metadata


def test_the_wheel_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """Dependencies come from the running environment, by a path that brings no editable install along."""
    python = environment(tmp_path / "environment")
    pip("--python", python, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    own = sysconfig.get_path("purelib", vars={"base": str(tmp_path / "environment")})
    Path(own, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    try_out(python, tmp_path / "empty")


@pytest.mark.long
def test_the_wheel_installs_with_all_that_it_depends_on(wheel: Path, tmp_path: Path) -> None:
    """As a user installs it: what it needs comes from the registry that pip is set up for."""
    python = environment(tmp_path / "environment")
    pip("--python", python, "install", wheel, cwd=tmp_path)
    try_out(python, tmp_path / "empty")
