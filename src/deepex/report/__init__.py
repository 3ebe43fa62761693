"""From the directory of a run or a study to one self-contained page. It reads what they left, and starts nothing."""

from deepex.report.run.page import write_report
from deepex.report.study.page import write_comparison, write_study_report

__all__ = ["write_comparison", "write_report", "write_study_report"]
