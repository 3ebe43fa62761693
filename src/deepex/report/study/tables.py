"""A study in text: tiles, tables of speed and of learning, what limits it, why its cells are not faster."""

from collections.abc import Sequence
from html import escape

from deepex.record.study_rows import UNAVAILABLE, CellRow, CutoffRow, Estimate, StudyOutcome
from deepex.report.html import typeset
from deepex.report.run.tables import show_tile
from deepex.report.study.study_set import PlacedCell, StudySet
from deepex.text import say_figure, say_interval, say_share


def show_tiles(studies: StudySet) -> str:
    """The figures that matter most."""
    larger = [cell for cell in studies.cells if cell.runs and cell is not studies.base_of(cell)]
    fair = [cell for cell in larger if not cell.oversubscribed] or larger
    tiles = []
    if quick := [(cell, found.value) for cell in fair if (found := cell.speedup)]:
        best, value = max(quick, key=lambda pair: pair[1])
        tiles.append(show_tile(f"{say_figure(value)} ×", f"S_p, the best: {studies.short_name(best)}"))
    if learned := [(cell, found.value) for cell in fair if (found := cell.cutoffs[-1].speedup)]:
        best, value = max(learned, key=lambda pair: pair[1])
        kind = "good" if value > 1 else "open"
        tiles.append(show_tile(f"{say_figure(value)} ×", f"S_L, the best: {studies.short_name(best)}", kind))
    elif fair:
        tiles.append(show_tile("not reached", f"S_L at {studies.say_cutoff(-1)}", "open"))
    if known := [(cell, found.value) for cell in fair if (found := cell.efficiency)]:
        best, value = max(known, key=lambda pair: (pair[0].ranks, pair[1]))
        tiles.append(show_tile(say_share(value), f"parallel efficiency, {studies.short_name(best)}"))
    crossings = [each.crossover for each in studies.series]
    if reached := [(ranks, each.kind) for each in crossings if (ranks := each.ranks) is not None]:
        ranks, how = min(reached, key=lambda pair: pair[0])
        tiles.append(show_tile(f"{ranks:,.0f}", f"ranks at which communication equals computing, {how}"))
    if noisy := [each.saturation for each in studies.series if each.saturation]:
        tiles.append(show_tile(f"{noisy[0].critical_batch:,.0f}", "samples, the critical batch by gradient noise"))
    done, total = (sum(_count(study, all_) for study in studies.studies) for all_ in (False, True))
    tiles.append(show_tile(f"{done} of {total}", "runs done", "" if done == total else "open"))
    return "".join(tiles)


def speed_table(studies: StudySet) -> str:
    """Time, speedup and rates of every cell."""
    heads = ("", "batch", "s an epoch", "S_p", "efficiency", "samples/s", "GFLOP/s", "of peak", "in sync", "energy")
    rows = []
    for cell in studies.cells:
        if not cell.runs:
            rows.append(_row(studies, cell, ["no finished run"] + [""] * (len(heads) - 2)))
            continue
        energy = cell.energy_joules
        rows.append(
            _row(
                studies,
                cell,
                [
                    f"{cell.batch:,}",
                    say_estimate(cell.epoch_seconds),
                    say_estimate(cell.speedup),
                    say_efficiency(cell),
                    "" if cell.samples_per_second is None else f"{cell.samples_per_second.value:,.0f}",
                    "" if cell.gflops_per_second is None else f"{cell.gflops_per_second.value:,.1f}",
                    "" if cell.share_of_peak is None else say_share(cell.share_of_peak.value),
                    say_share(cell.phase_shares["sync"]),
                    UNAVAILABLE if energy is None else f"{energy / 1e3:,.3g} kJ",
                ],
            )
        )
    return _table(heads, rows)


def learning_table(studies: StudySet) -> str:
    """Epochs, samples and core-hours to each cut-off, and the learning speedup."""
    heads = [""]
    for place in range(len(studies.cutoffs)):
        heads += [f"epochs to {studies.say_cutoff(place)}", "S_L"]
    heads += ["samples", "core-hours"]
    rows = []
    for cell in studies.cells:
        if not cell.runs:
            continue
        values = []
        for place, each in enumerate(cell.cutoffs):
            epochs = [run.epochs_to[place] for run in cell.runs]
            values.append(", ".join("not reached" if number is None else str(number) for number in epochs))
            values.append(say_speedup(each))
        last = cell.cutoffs[-1]
        values.append("" if last.samples is None else f"{last.samples.value:,.0f}")
        values.append("" if last.core_hours is None else f"{last.core_hours.value:.3g}")
        rows.append(_row(studies, cell, values))
    return _table(heads, rows)


def show_limits(studies: StudySet) -> str:
    """Where each line ends by communication, and by noise."""
    items = []
    for series in studies.series:
        text, limit = series.crossover.sentence, series.saturation
        if limit is not None:
            text += (
                f" The noise scale is about {limit.critical_batch:,.0f} samples, "
                f"{limit.critical_ranks:,.3g} times the {limit.batch:,} that one rank takes a step: at about "
                f"{max(1, limit.critical_ranks):,.0f} ranks half of all is had that larger batches can bring, and "
                f"the learning speedup of synchronous training saturates at {limit.most_learning_speedup:,.3g}."
            )
        items.append(f"<dt>{escape(studies.say_series(series))}</dt><dd>{escape(text)}</dd>")
    return f"<dl>{''.join(items)}</dl>"


def show_verdicts(studies: StudySet) -> str:
    """What bounds each cell, and what would help most."""
    items = []
    for cell in studies.cells:
        found = cell.diagnosis
        if found is None or not found.verdict:
            continue
        text = escape(found.verdict)
        if found.advice:
            best = found.advice[0]
            text += f" Most would help: <code>{escape(best.change)}</code>, about {best.gain:.2f} × the samples/s."
        items.append(f"<dt>{escape(studies.short_name(cell))}</dt><dd>{text}</dd>")
    return f"<dl>{''.join(items)}</dl>"


def say_estimate(found: Estimate | None) -> str:
    """A figure with its 95 % interval; nothing for one that there is not."""
    return "" if found is None else say_interval(found.value, found.low, found.high)


def say_speedup(cutoff: CutoffRow) -> str:
    """A learning speedup, or why there is none."""
    return cutoff.why_no_speedup if cutoff.speedup is None else say_estimate(cutoff.speedup)


def say_efficiency(cell: CellRow) -> str:
    """A parallel efficiency with its interval, or why there is none."""
    if cell.oversubscribed:
        return "none: cores shared"
    if cell.uneven_cores:
        return "none: cores differ"
    found = cell.efficiency
    if found is None:
        return ""
    if found.low is None or found.high is None:
        return f"{100 * found.value:.0f} %"
    return f"{100 * found.value:.0f} % ({100 * found.low:.0f}–{100 * found.high:.0f})"


def _count(study: StudyOutcome, all_: bool) -> int:
    return sum(study.states.values()) if all_ else study.states["done"]


def _row(studies: StudySet, cell: PlacedCell, values: Sequence[str]) -> str:
    kind = ' class="shared"' if cell.oversubscribed else ""
    cells = "".join(f"<td>{escape(value)}</td>" for value in values)
    return f"<tr{kind}><th>{escape(studies.short_name(cell))}</th>{cells}</tr>"


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{typeset(text)}</th>" for text in heads)
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table class="cells">{body}</table></div>'
