"""What a study found, in three plain sentences. It reads the outcome as study.json has it."""

from collections.abc import Mapping, Sequence
from typing import Any

from deepex.text import say_interval, say_plural

Row = Mapping[str, Any]


def find_sentences(outcome: Row) -> list[str]:
    """What more ranks bring an epoch and learning, what bounds it, and what noise allows."""
    finished = [cell for cell in outcome["cells"] if cell["runs"]]
    if not finished:
        return ["No run of the study has finished yet, so there is only its plan to show."]
    larger = [cell for cell in finished if cell["ranks"] > outcome["base_ranks"] and cell["speedup"]]
    if not larger:
        return [_waiting(outcome, finished)]
    sentences = [_speed(outcome, larger), _limits(outcome, larger), _noise(outcome)]
    if any(outcome["states"][state] for state in ("running", "stopped", "left", "failed")):
        sentences.append(_unfinished(outcome["states"]))
    return sentences


def _waiting(outcome: Row, finished: Sequence[Row]) -> str:
    learned = [cell for cell in finished if cell["cutoffs"][-1]["seconds"]]
    if learned and len({cell["ranks"] for cell in outcome["cells"]}) == 1:
        best = min(learned, key=lambda cell: float(cell["cutoffs"][-1]["seconds"]["value"]))
        end = best["cutoffs"][-1]
        return (
            f"{say_cell(best)} comes to {say_goal(outcome)} soonest of {len(finished)} cells: in "
            f"{say_estimate(end['seconds'])} s and {end['epochs']['value']:.3g} epochs."
        )
    return (
        f"So far {len(finished)} of {len(outcome['cells'])} cells have a finished run, none of them one to compare "
        "with another."
    )


def _speed(outcome: Row, cells: Sequence[Row]) -> str:
    """Per-epoch speedup beside learning speedup, of the cell that learns fastest."""
    goal = say_goal(outcome)
    fair = [cell for cell in cells if not cell["oversubscribed"]] or list(cells)
    learned = [cell for cell in fair if isinstance(cell["cutoffs"][-1]["speedup"], Mapping)]
    alone = say_plural(outcome["base_ranks"], "rank")
    if not learned:
        best = max(fair, key=lambda cell: float(cell["speedup"]["value"]))
        return (
            f"{say_cell(best)} go through an epoch {say_estimate(best['speedup'])} times as fast as {alone}; {goal} "
            "was not reached by all runs that would be compared, so there is no learning speedup."
        )
    best = max(learned, key=lambda cell: float(cell["cutoffs"][-1]["speedup"]["value"]))
    end = best["cutoffs"][-1]
    base = next(cell for cell in outcome["cells"] if is_base_of(cell, best, outcome["base_ranks"]))
    before = base["cutoffs"][-1]["epochs"]["value"]
    low, high = end["speedup"]["low"], end["speedup"]["high"]
    doubt = ", which may be chance" if low is not None and low < 1 < high else ""
    return (
        f"{say_cell(best)} go through an epoch {say_estimate(best['speedup'])} times as fast as {alone} and come to "
        f"{goal} {say_estimate(end['speedup'])} times as fast{doubt}, with {end['epochs']['value']:.3g} epochs instead "
        f"of {before:.3g}{'; of all cells that is the best learning speedup' if len(learned) > 1 else ''}."
    )


def _limits(outcome: Row, cells: Sequence[Row]) -> str:
    """Efficiency at the most ranks, and where communication catches up."""
    fair = [cell for cell in cells if cell["efficiency"]]
    if not fair:
        return "All cells with more ranks shared cores: nothing can be said of their efficiency."
    most = max(cell["ranks"] for cell in fair)
    told = [
        f"{100 * cell['efficiency']['value']:.0f} % with {say_series(cell)}" for cell in fair if cell["ranks"] == most
    ]
    known = [each for each in outcome["series"] if each["crossover"]["ranks"] is not None]
    limit = "communication does not catch up with computing at any number of ranks within reach"
    if known:
        soonest = min(known, key=lambda each: float(each["crossover"]["ranks"]))
        kind = soonest["crossover"]["kind"]
        limit = (
            f"communication would take as long as computing at about {soonest['crossover']['ranks']:,.0f} ranks "
            f"({kind}, {say_series(soonest)})"
        )
    return f"At {most} ranks the parallel efficiency is {', '.join(told)}; {limit}."


def _noise(outcome: Row) -> str:
    known = [each for each in outcome["series"] if each["saturation"]]
    if not known:
        return (
            "The noise of gradients could not be told, nor where larger batches stop helping: weak scaling with "
            "--sync allreduce on two ranks or more would."
        )
    first = known[0]["saturation"]
    return (
        f"Gradients have as much noise as signal at a batch of about {first['critical_batch']:,.0f} samples: "
        f"with {first['batch']} a rank, synchronous training should gain little beyond about "
        f"{max(1.0, first['critical_ranks']):,.0f} ranks, and learn at most {first['most_learning_speedup']:,.3g} "
        "times as fast."
    )


def _unfinished(states: Mapping[str, int]) -> str:
    told = [f"{count} {state}" for state, count in states.items() if count and state != "done"]
    return f"The study is not complete: {states['done']} runs are done, {', '.join(told)}."


def is_base_of(cell: Row, other: Row, base_ranks: int) -> bool:
    """Whether a cell is what another's speedup is counted from."""
    return bool(
        cell["ranks"] == base_ranks
        and cell["settings"] == other["settings"]
        and cell["series"] in ("", other["series"])
        and cell["runs"]
    )


def say_goal(outcome: Row) -> str:
    return f"{outcome['metric']} {'<' if outcome['direction'] == 'min' else '>'} {outcome['cutoffs'][-1]:g}"


def say_cell(cell: Row) -> str:
    return f"{say_plural(cell['ranks'], 'rank')} with {say_series(cell)}"


def say_series(each: Row) -> str:
    """A series in words; `settings` that vary stand behind it.

    >>> say_series({"series": "local:8", "settings": ["data.batch=32"]})
    'local:8, data.batch=32'
    """
    return ", ".join([each.get("series") or each.get("name") or "one rank", *each["settings"]])


def say_estimate(found: Row) -> str:
    """An estimate of study.json with its 95 % interval."""
    return say_interval(found["value"], found["low"], found.get("high"))
