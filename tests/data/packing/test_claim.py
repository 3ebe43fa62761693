import subprocess
import sys
from pathlib import Path

import pytest

from deepex.data.packing.claim import claimed, compare_plans, read_plan, write_plan
from deepex.errors import DataError

HOLD = """
import sys
from pathlib import Path
from deepex.data.packing.claim import claimed, write_plan
with claimed(Path(sys.argv[1]), Path(sys.argv[2]), 0):
    write_plan(Path(sys.argv[1]), {})
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    parts, out = tmp_path / "a.h5.parts", tmp_path / "a.h5"
    command = [sys.executable, "-c", HOLD, str(parts), str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DataError, match="is being packed already"), claimed(parts, out, 0):
            pass
        other.communicate(timeout=60)
    with claimed(parts, out, 0):
        assert read_plan(parts) == {}


def test_what_fails_before_its_plan_leaves_nothing(tmp_path: Path) -> None:
    parts, out = tmp_path / "new" / "a.h5.parts", tmp_path / "new" / "a.h5"
    with claimed(parts, out, 0):
        assert read_plan(parts) is None
    assert not parts.exists()
    with claimed(parts, out, 0):
        write_plan(parts, {"names": "a"})
    assert read_plan(parts) == {"names": "a"}


def test_parts_of_another_packing_are_told_apart(tmp_path: Path) -> None:
    plan = {"names": "a", "edges": (0, 1), "fields": {}}
    write_plan(tmp_path, plan)
    earlier = read_plan(tmp_path)
    assert earlier is not None
    compare_plans(tmp_path, earlier, plan)
    with pytest.raises(DataError, match=r"another packing \(other names, edges\)\. Delete that folder"):
        compare_plans(tmp_path, earlier, {**plan, "names": "b", "edges": (0, 2)})


def test_a_place_without_room_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    parts, out = tmp_path / "a.h5.parts", tmp_path / "a.h5"
    with (
        pytest.raises(DataError, match=r"needs 1,099,511,627,776\.0 MiB.* Free some space"),
        claimed(parts, out, 1 << 60),
    ):
        pass
    assert not list(tmp_path.iterdir())
    out.touch()
    with pytest.raises(DataError, match="exists already"), claimed(parts, out, 0):
        pass
