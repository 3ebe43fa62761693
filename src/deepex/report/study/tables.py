"""A study in text: tiles, tables of speed and of learning, what limits it, why its cells are not faster."""

from collections.abc import Mapping, Sequence
from html import escape

from deepex.report.html import typeset
from deepex.report.run.tables import show_tile
from deepex.report.study.study_set import Row, StudySet
from deepex.text import say_figure, say_interval, say_share


def show_tiles(studies: StudySet) -> str:
    """The figures that matter most."""
    larger = [cell for cell in studies.cells if cell["runs"] and cell is not studies.base_of(cell)]
    fair = [cell for cell in larger if not cell["oversubscribed"]] or larger
    tiles = []
    if quick := [cell for cell in fair if cell["speedup"]]:
        best = max(quick, key=lambda cell: float(cell["speedup"]["value"]))
        tiles.append(
            show_tile(f"{say_figure(best['speedup']['value'])} ×", f"S_p, the best: {studies.short_name(best)}")
        )
    learned = [cell for cell in fair if isinstance(cell["cutoffs"][-1]["speedup"], Mapping)]
    if learned:
        best = max(learned, key=lambda cell: float(cell["cutoffs"][-1]["speedup"]["value"]))
        value = best["cutoffs"][-1]["speedup"]["value"]
        kind = "good" if value > 1 else "open"
        tiles.append(show_tile(f"{say_figure(value)} ×", f"S_L, the best: {studies.short_name(best)}", kind))
    elif fair:
        tiles.append(show_tile("not reached", f"S_L at {studies.say_cutoff(-1)}", "open"))
    if known := [cell for cell in fair if cell["efficiency"]]:
        best = max(known, key=lambda cell: (int(cell["ranks"]), float(cell["efficiency"]["value"])))
        tiles.append(
            show_tile(say_share(best["efficiency"]["value"]), f"parallel efficiency, {studies.short_name(best)}")
        )
    crossings = [each["crossover"] for each in studies.series if each["crossover"]["ranks"] is not None]
    if crossings:
        first = min(crossings, key=lambda each: float(each["ranks"]))
        tiles.append(
            show_tile(f"{first['ranks']:,.0f}", f"ranks at which communication equals computing, {first['kind']}")
        )
    if noisy := [each["saturation"] for each in studies.series if each["saturation"]]:
        tiles.append(show_tile(f"{noisy[0]['critical_batch']:,.0f}", "samples, the critical batch by gradient noise"))
    done, total = (sum(_count(study, all_) for study in studies.studies) for all_ in (False, True))
    tiles.append(show_tile(f"{done} of {total}", "runs done", "" if done == total else "open"))
    return "".join(tiles)


def speed_table(studies: StudySet) -> str:
    """Time, speedup and rates of every cell."""
    heads = ("", "batch", "s an epoch", "S_p", "efficiency", "samples/s", "GFLOP/s", "of peak", "in sync", "energy")
    rows = []
    for cell in studies.cells:
        if not cell["runs"]:
            rows.append(_row(studies, cell, ["no finished run"] + [""] * (len(heads) - 2)))
            continue
        energy = cell["energy_joules"]
        rows.append(
            _row(
                studies,
                cell,
                [
                    f"{cell['batch']:,}",
                    say_estimate(cell["epoch_seconds"]),
                    say_estimate(cell["speedup"]),
                    _say_efficiency(cell),
                    f"{cell['samples_per_second']['value']:,.0f}",
                    "" if cell["gflops_per_second"] is None else f"{cell['gflops_per_second']['value']:,.1f}",
                    "" if cell["share_of_peak"] is None else say_share(cell["share_of_peak"]["value"]),
                    say_share(cell["phase_shares"]["sync"]),
                    energy if isinstance(energy, str) else f"{energy / 1e3:,.3g} kJ",
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
        if not cell["runs"]:
            continue
        values = []
        for place, each in enumerate(cell["cutoffs"]):
            epochs = [run["epochs_to"][place] for run in cell["runs"]]
            values.append(", ".join("not reached" if number is None else str(number) for number in epochs))
            values.append(each["speedup"] if isinstance(each["speedup"], str) else say_estimate(each["speedup"]))
        last = cell["cutoffs"][-1]
        values.append("" if last["samples"] is None else f"{last['samples']['value']:,.0f}")
        values.append("" if last["core_hours"] is None else f"{last['core_hours']['value']:.3g}")
        rows.append(_row(studies, cell, values))
    return _table(heads, rows)


def show_limits(studies: StudySet) -> str:
    """Where each line ends by communication, and by noise."""
    items = []
    for series in studies.series:
        crossing, limit = series["crossover"], series["saturation"]
        text = str(crossing["sentence"])
        if limit is not None:
            text += (
                f" The noise scale is about {limit['critical_batch']:,.0f} samples, "
                f"{limit['critical_ranks']:,.3g} times the {limit['batch']:,} that one rank takes a step: at about "
                f"{max(1, limit['critical_ranks']):,.0f} ranks half of all is had that larger batches can bring, and "
                f"the learning speedup of synchronous training saturates at {limit['most_learning_speedup']:,.3g}."
            )
        items.append(f"<dt>{escape(studies.say_series(series))}</dt><dd>{escape(text)}</dd>")
    return f"<dl>{''.join(items)}</dl>"


def show_verdicts(studies: StudySet) -> str:
    """What bounds each cell, and what would help most."""
    items = []
    for cell in studies.cells:
        found = cell.get("diagnosis") or {}
        if not found.get("verdict"):
            continue
        text = escape(found["verdict"])
        if found["advice"]:
            best = found["advice"][0]
            text += (
                f" Most would help: <code>{escape(best['change'])}</code>, about {best['gain']:.2f} × the samples/s."
            )
        items.append(f"<dt>{escape(studies.short_name(cell))}</dt><dd>{text}</dd>")
    return f"<dl>{''.join(items)}</dl>"


def say_estimate(found: Row | None) -> str:
    """An estimate of study.json with its 95 % interval; nothing for one that there is not."""
    return "" if found is None else say_interval(found["value"], found["low"], found.get("high"))


def _say_efficiency(cell: Row) -> str:
    if cell["oversubscribed"]:
        return "none: cores shared"
    if cell["uneven_cores"]:
        return "none: cores differ"
    found = cell["efficiency"]
    if found is None:
        return ""
    if found["low"] is None:
        return f"{100 * found['value']:.0f} %"
    return f"{100 * found['value']:.0f} % ({100 * found['low']:.0f}–{100 * found['high']:.0f})"


def _count(study: Row, all_: bool) -> int:
    return sum(study["states"].values()) if all_ else int(study["states"]["done"])


def _row(studies: StudySet, cell: Row, values: Sequence[str]) -> str:
    kind = ' class="shared"' if cell["oversubscribed"] else ""
    cells = "".join(f"<td>{escape(value)}</td>" for value in values)
    return f"<tr{kind}><th>{escape(studies.short_name(cell))}</th>{cells}</tr>"


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{typeset(text)}</th>" for text in heads)
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table class="cells">{body}</table></div>'
