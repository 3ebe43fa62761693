"""What a run found, in three plain sentences. It knows no HTML."""

from deepex.record.phases import STEP_PHASES
from deepex.report.run.run_data import RunData
from deepex.text import say_duration, say_plural, say_share, say_value


def find_sentences(data: RunData) -> list[str]:
    """Whether the target was reached, where the time went, and what the task itself has to say."""
    if not data.rows:
        return ["The run is not complete: its first epoch has not ended, so there is only its record to show."]
    return [_outcome(data), _time(data), _own(data)]


def _outcome(data: RunData) -> str:
    summary, last = data.summary, data.rows[-1]
    value = f"{data.metric} {say_value(last.value)}"
    when = f"after {say_plural(last.epoch, 'epoch')} and {say_duration(last.seconds)}"
    if data.target is None or data.target.threshold is None:
        return f"The run {'ended' if summary else 'is not complete: it stands'} at {value} {when}. It has no target."
    goal = f"target {data.target}"
    if summary is None:
        return f"The run is not complete: {when} it stands at {value} ({goal})."
    if summary.epochs_to_target is not None and summary.epochs_to_target < last.epoch:
        passed = say_plural(summary.epochs_to_target, "epoch")
        return f"The run reached its target after {passed} and went on: {value} ({goal}) {when}."
    if summary.target_reached:
        return f"The run reached its target: {value} ({goal}) {when}."
    return f"The run did not reach its target: {value} ({goal}) {when}."


def _time(data: RunData) -> str:
    largest = sorted(STEP_PHASES, key=data.phase_seconds, reverse=True)[:3]
    named = [*largest, "sync"] if data.recipe.num_ranks > 1 and "sync" not in largest else largest
    parts = [f"{name} {say_share(data.phase_share(name))}" for name in named]
    text = (
        f"The training steps took {say_duration(data.wall_seconds)}: {', '.join(parts[:-1])} and {parts[-1]} of it, "
        f"at {data.samples_per_second:,.0f} samples/s"
    )
    if data.summary is None:
        return text + "."
    return f"{text} and {say_share(data.summary.share_of_peak)} of the processor's GEMM peak."


def _own(data: RunData) -> str:
    if data.illustration is not None:
        return data.illustration.sentence
    first, last = data.rows[0], data.rows[-1]
    if first is last:
        return f"After its only epoch the loss was {say_value(last.loss)}."
    return (
        f"From epoch {first.epoch} to epoch {last.epoch}, {data.metric} went from "
        f"{say_value(first.value)} to {say_value(last.value)} and the loss from {say_value(first.loss)} "
        f"to {say_value(last.loss)}."
    )
