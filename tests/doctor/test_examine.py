import tempfile
from dataclasses import replace
from pathlib import Path

from deepex.doctor.examine import measure_temporary_folder
from deepex.doctor.machine import Machine


def test_a_temporary_folder_on_the_data_s_file_system_is_not_measured_again(healthy: Machine) -> None:
    same = Path(tempfile.gettempdir())
    speed = measure_temporary_folder(replace(healthy.data_folder, path=str(same)))
    assert speed.measured_by == "the data folder, on the same file system"
    assert speed.write_mb_per_second == healthy.data_folder.write_mb_per_second


def test_a_temporary_folder_elsewhere_is_measured(healthy: Machine) -> None:
    speed = measure_temporary_folder(replace(healthy.data_folder, path="/proc"))
    assert speed.path == tempfile.gettempdir()
    assert speed.measured_by.startswith("a temporary file of")
