"""The sections of a run's page, one a file, in the order in which they stand there."""

from collections.abc import Callable

from deepex.report.html import Gallery
from deepex.report.run.run_data import RunData
from deepex.report.run.sections.curves import show_curves
from deepex.report.run.sections.diagnosis import show_diagnosis
from deepex.report.run.sections.phases import show_phases
from deepex.report.run.sections.pictures import show_pictures

SECTIONS: tuple[Callable[[RunData, Gallery], str], ...] = (
    show_diagnosis,
    show_curves,
    show_phases,
    show_pictures,
)
"""Each makes its part of the page from a run with at least one epoch, and shows its figures by the gallery."""
