"""Many runs of one recipe over varied axes, and what they show together. It starts runs and reads what they leave."""

from deepex.study.folder import StudyFolder, is_study
from deepex.study.outcome import read_outcome
from deepex.study.plan import Plan

__all__ = ["Plan", "StudyFolder", "is_study", "read_outcome"]
