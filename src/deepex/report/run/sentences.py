"""What was found, in three plain sentences, and how numbers read in words. It knows no HTML."""

from deepex.record.phases import STEP_PHASES
from deepex.record.sinks.progress import say_seconds
from deepex.report.run.run_data import Material


def find_sentences(material: Material) -> list[str]:
    """Whether the target was reached, where the time went, and what the task itself has to say."""
    if not material.rows:
        return ["The run is not complete: its first epoch has not ended, so there is only its record to show."]
    return [_outcome(material), _time(material), _own(material)]


def _outcome(material: Material) -> str:
    summary, last = material.summary, material.rows[-1]
    value = f"{material.metric} {say_value(last['value'])}"
    when = f"after {say_count(last['epoch'], 'epoch')} and {say_seconds(last['seconds'])}"
    goal = f"target {material.recipe.target}"
    if summary is None:
        return f"The run is not complete: {when} it stands at {value} ({goal})."
    if summary["target_reached"] and summary["epochs_to_target"] < last["epoch"]:
        passed = say_count(summary["epochs_to_target"], "epoch")
        return f"The run reached its target after {passed} and went on: {value} ({goal}) {when}."
    if summary["target_reached"]:
        return f"The run reached its target: {value} ({goal}) {when}."
    return f"The run did not reach its target: {value} ({goal}) {when}."


def _time(material: Material) -> str:
    largest = sorted(STEP_PHASES, key=material.phase_seconds, reverse=True)[:3]
    named = [*largest, "sync"] if material.recipe.world.ranks > 1 and "sync" not in largest else largest
    parts = [f"{name} {say_share(material.phase_share(name))}" for name in named]
    text = (
        f"The training steps took {say_seconds(material.wall_seconds)}: {', '.join(parts[:-1])} and {parts[-1]} of it, "
        f"at {material.samples_per_second:,.0f} samples/s"
    )
    if material.summary is None:
        return text + "."
    return f"{text} and {say_share(material.summary['share_of_peak'])} of the processor's GEMM peak."


def _own(material: Material) -> str:
    if material.illustration is not None:
        return material.illustration.sentence
    first, last = material.rows[0], material.rows[-1]
    if first is last:
        return f"After its only epoch the loss was {say_value(last['loss'])}."
    return (
        f"From epoch {first['epoch']} to epoch {last['epoch']}, {material.metric} went from "
        f"{say_value(first['value'])} to {say_value(last['value'])} and the loss from {say_value(first['loss'])} "
        f"to {say_value(last['loss'])}."
    )


def say_value(value: float) -> str:
    """Four significant figures.

    >>> say_value(0.291987), say_value(2143.4)
    ('0.2920', '2143')
    """
    return f"{value:#.4g}".rstrip(".")


def say_share(share: float) -> str:
    """A share in percent, with a decimal where it is small.

    >>> say_share(0.4944), say_share(0.0065), say_share(0.0)
    ('49 %', '0.7 %', '0 %')
    """
    if share == 0:
        return "0 %"
    if share < 0.0005:
        return "< 0.1 %"
    return f"{share:.0%}".replace("%", " %") if share >= 0.0995 else f"{100 * share:.1f} %"


def say_count(number: int, noun: str) -> str:
    """A number of things.

    >>> say_count(1, "rank"), say_count(27360, "rank")
    ('1 rank', '27,360 ranks')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
