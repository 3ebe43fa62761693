"""What a study found, in three plain sentences. It reads the outcome, and no run."""

from collections.abc import Mapping, Sequence

from deepex.record.study_rows import CellRow, Estimate, State, StudyOutcome
from deepex.text import say_interval, say_plural


def find_sentences(outcome: StudyOutcome) -> list[str]:
    """What more ranks bring an epoch and learning, what bounds it, and what noise allows."""
    finished = [cell for cell in outcome.cells if cell.runs]
    if not finished:
        return ["No run of the study has finished yet, so there is only its plan to show."]
    larger = [cell for cell in finished if cell.ranks > outcome.base_ranks and cell.speedup]
    if not larger:
        return [_waiting(outcome, finished)]
    sentences = [_speed(outcome, larger), _limits(outcome, larger), _noise(outcome)]
    if any(count for state, count in outcome.states.items() if state != "done"):
        sentences.append(_unfinished(outcome.states))
    return sentences


def _waiting(outcome: StudyOutcome, finished: Sequence[CellRow]) -> str:
    learned = [(seconds, cell) for cell in finished if (seconds := cell.cutoffs[-1].seconds)]
    if learned and len({cell.ranks for cell in outcome.cells}) == 1:
        seconds, best = min(learned, key=lambda pair: pair[0].value)
        return (
            f"{say_cell(best)} comes to {say_goal(outcome)} soonest of {len(finished)} cells: in "
            f"{say_estimate(seconds)} s and {_epochs_to_target(best):.3g} epochs."
        )
    return (
        f"So far {len(finished)} of {len(outcome.cells)} cells have a finished run, none of them one to compare "
        "with another."
    )


def _speed(outcome: StudyOutcome, cells: Sequence[CellRow]) -> str:
    """Per-epoch speedup beside learning speedup, of the cell that learns fastest."""
    goal = say_goal(outcome)
    fair = [cell for cell in cells if not cell.oversubscribed] or list(cells)
    quick = [(found, cell) for cell in fair if (found := cell.speedup)]
    learned = [(*pair, found) for pair in quick if (found := pair[1].cutoffs[-1].speedup)]
    alone = say_plural(outcome.base_ranks, "rank")
    if not learned:
        speedup, best = max(quick, key=lambda pair: pair[0].value)
        return (
            f"{say_cell(best)} go through an epoch {say_estimate(speedup)} times as fast as {alone}; {goal} "
            "was not reached by all runs that would be compared, so there is no learning speedup."
        )
    speedup, best, learning = max(learned, key=lambda each: each[2].value)
    base = next(cell for cell in outcome.cells if is_base_of(cell, best, outcome.base_ranks))
    low, high = learning.low, learning.high
    doubt = ", which may be chance" if low is not None and high is not None and low < 1 < high else ""
    return (
        f"{say_cell(best)} go through an epoch {say_estimate(speedup)} times as fast as {alone} and come to "
        f"{goal} {say_estimate(learning)} times as fast{doubt}, with {_epochs_to_target(best):.3g} epochs instead "
        f"of {_epochs_to_target(base):.3g}"
        f"{'; of all cells that is the best learning speedup' if len(learned) > 1 else ''}."
    )


def _epochs_to_target(cell: CellRow) -> float:
    found = cell.cutoffs[-1].epochs
    assert found is not None, "all its runs came to the target"
    return found.value


def _limits(outcome: StudyOutcome, cells: Sequence[CellRow]) -> str:
    """Efficiency at the most ranks, and where communication catches up."""
    fair = [(found, cell) for cell in cells if (found := cell.efficiency)]
    if not fair:
        return "All cells with more ranks shared cores: nothing can be said of their efficiency."
    most = max(cell.ranks for _, cell in fair)
    told = [f"{100 * found.value:.0f} % with {_say_series_of(cell)}" for found, cell in fair if cell.ranks == most]
    known = [(ranks, each) for each in outcome.series if (ranks := each.crossover.ranks) is not None]
    limit = "communication does not catch up with computing at any number of ranks within reach"
    if known:
        ranks, soonest = min(known, key=lambda pair: pair[0])
        limit = (
            f"communication would take as long as computing at about {ranks:,.0f} ranks "
            f"({soonest.crossover.kind}, {say_series(soonest.name, soonest.settings)})"
        )
    return f"At {most} ranks the parallel efficiency is {', '.join(told)}; {limit}."


def _noise(outcome: StudyOutcome) -> str:
    known = [each.saturation for each in outcome.series if each.saturation]
    if not known:
        return (
            "The noise of gradients could not be told, nor where larger batches stop helping: weak scaling with "
            "--sync allreduce on two ranks or more would."
        )
    first = known[0]
    return (
        f"Gradients have as much noise as signal at a batch of about {first.critical_batch:,.0f} samples: "
        f"with {first.batch} a rank, synchronous training should gain little beyond about "
        f"{max(1.0, first.critical_ranks):,.0f} ranks, and learn at most {first.most_learning_speedup:,.3g} "
        "times as fast."
    )


def _unfinished(states: Mapping[State, int]) -> str:
    told = [f"{count} {state}" for state, count in states.items() if count and state != "done"]
    return f"The study is not complete: {states['done']} runs are done, {', '.join(told)}."


def is_base_of(cell: CellRow, other: CellRow, base_ranks: int) -> bool:
    """Whether a cell is what another's speedup is counted from."""
    return (
        cell.ranks == base_ranks
        and cell.settings == other.settings
        and cell.series in ("", other.series)
        and bool(cell.runs)
    )


def say_goal(outcome: StudyOutcome) -> str:
    return f"{outcome.metric} {'<' if outcome.direction == 'min' else '>'} {outcome.cutoffs[-1]:g}"


def say_cell(cell: CellRow) -> str:
    return f"{say_plural(cell.ranks, 'rank')} with {_say_series_of(cell)}"


def _say_series_of(cell: CellRow) -> str:
    return say_series(cell.series or cell.name, cell.settings)


def say_series(name: str, settings: Sequence[str]) -> str:
    """A series in words; `settings` that vary stand behind it.

    >>> say_series("local:8", ["data.batch=32"])
    'local:8, data.batch=32'
    """
    return ", ".join([name or "one rank", *settings])


def say_estimate(found: Estimate) -> str:
    """A figure with its 95 % interval."""
    return say_interval(found.value, found.low, found.high)
