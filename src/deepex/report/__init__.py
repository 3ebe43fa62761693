"""From a run directory to one self-contained page. It reads what a run left behind and knows nothing of its course."""

from deepex.report.page import write_report

__all__ = ["write_report"]
