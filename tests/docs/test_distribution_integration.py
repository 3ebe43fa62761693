"""What `make dist` builds: a wheel with all files of the package, and sources that can be tested and documented."""

import subprocess
import tarfile
import zipfile
from pathlib import Path

from tests.docs.pages import ROOT
from tests.interpreter import PYTHON

NEEDED = ("CITATION.cff", "LICENSE", "Makefile", "README.md", "constraints.txt", "pyproject.toml", "docs/conf.py")
PLACES = ("benchmarks", "docs", "examples", "src", "tests")


def test_wheel_and_sources_are_complete(tmp_path: Path) -> None:
    command = [PYTHON, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sources,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")

    package = ROOT / "src" / "deepex"
    files = {str(path.relative_to(package.parent)) for path in package.rglob("*") if path.is_file()}
    expected = {file for file in files if "__pycache__" not in file}
    with zipfile.ZipFile(wheel) as archive:
        packed = {file for file in archive.namelist() if ".dist-info/" not in file}
    assert packed == expected

    with tarfile.open(sources) as archive:
        held = {file.partition("/")[2] for file in archive.getnames()}
    assert [file for file in NEEDED if file not in held] == []
    assert str(Path(__file__).relative_to(ROOT)) in held
    assert {file.partition("/")[0] for file in held if "/" in file} == set(PLACES)

    command = [PYTHON, "-m", "twine", "check", "--strict", str(wheel), str(sources)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout
