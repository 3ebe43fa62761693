"""The first ten minutes: the built wheel in an environment of its own, and a script outside of the repository."""

import re
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

from tests.interpreter import PYTHON

ROOT = Path(__file__).parents[1]


def test_a_stranger_installs_the_wheel_trains_a_module_and_has_it_back(tmp_path: Path) -> None:
    build = [PYTHON, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    assert subprocess.run(build, capture_output=True, timeout=120).returncode == 0
    (wheel,) = tmp_path.glob("*.whl")
    clean = tmp_path / "clean"
    venv.create(clean, with_pip=False)
    install = [PYTHON, "-m", "pip", "--python", str(clean), "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    assert subprocess.run(install, capture_output=True, timeout=120).returncode == 0
    # What deepex needs comes from this environment: `make dist` installs all of it anew, which takes a minute.
    (places,) = clean.glob("lib/*/site-packages")
    (places / "needs.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")

    shutil.copy(ROOT / "examples" / "first.py", tmp_path / "mine.py")
    done = subprocess.run(
        [clean / "bin" / "python", "mine.py"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    predicted, truth = map(float, re.findall(r"1\): ([\d.]+), truth ([\d.]+)", done.stdout)[0])
    assert abs(predicted - truth) < 0.1

    program = (
        "import deepex as dx, sys; print(dx.__file__); print(sum(p.numel() for p in dx.load(sys.argv[1]).parameters()))"
    )
    (run,) = (tmp_path / "runs").iterdir()
    again = subprocess.run(
        [clean / "bin" / "python", "-c", program, run], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    place, weights = again.stdout.split()
    assert place.startswith(str(clean))
    assert int(weights) == 2 * 64 + 64 + 64 * 64 + 64 + 64 + 1
