"""Pages from Python: of a run, of a study, of several studies."""

from collections.abc import Sequence
from pathlib import Path

from deepex.record.folder import RunFolder
from deepex.report import write_comparison, write_report, write_study_report
from deepex.study import StudyFolder, is_study, read_outcome


def report(path: str | Path, out: str | Path | None = None) -> Path:
    """Write the page of a run or of a study anew, finished or not; returns its path.

    Arguments:
        path: the directory of the run or study, of which no file but the page and its figures changes.
        out: another place for the page; then nothing there changes.
    """
    path = Path(path)
    if not is_study(path):
        return write_report(RunFolder.open(path), None if out is None else Path(out))
    if out is not None:
        return compare([path], out)
    return write_study_report(path, read_outcome(StudyFolder.open(path)))


def compare(paths: Sequence[str | Path], out: str | Path) -> Path:
    """Write one page of several studies of a task; what they differ in, machines and commits too, it says."""
    return write_comparison([read_outcome(StudyFolder.open(Path(path))) for path in paths], Path(out))
