"""What a reader of a study must know: warnings before the figures, and the record by which to run it again."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from deepex.record.study_rows import Environment, StudyOutcome
from deepex.report.study.study_set import StudySet
from deepex.text import say_duration, say_plural

DIFFERENCES = {
    "host": "hosts",
    "processor": "processors",
    "instructions": "instructions",
    "memory_gib": "memory (GiB)",
    "system": "systems",
    "accelerators": "accelerators",
    "commit": "commits",
    "clean": "clean work tree",
    "versions": "versions",
}


def find_warnings(studies: StudySet) -> list[str]:
    """What a reader must know before believing a figure."""
    warnings = []
    if shared := [studies.short_name(cell) for cell in studies.cells if cell.oversubscribed]:
        warnings.append(
            f"More ranks than cores: {'; '.join(shared)}. These cells are drawn hollow, and nothing is claimed of "
            "their efficiency."
        )
    if uneven := [studies.short_name(cell) for cell in studies.cells if cell.uneven_cores]:
        warnings.append(
            f"Ranks had more or fewer cores than those they are compared with: {'; '.join(uneven)}. Nothing is claimed "
            "of their efficiency."
        )
    seen = studies.environments
    if len(seen) > 1:
        differ = [key for key in DIFFERENCES if len({repr(getattr(each, key)) for each in seen}) > 1]
        told = "; ".join(
            f"{DIFFERENCES[key]}: {', '.join(sorted({_say_plainly(getattr(each, key)) for each in seen}))}"
            for key in differ
        )
        warnings.append(
            f"Runs of different machines or commits stand on this page ({told}). Compare ratios within one, not "
            "seconds between them."
        )
    if any(each.clean is False for each in seen):
        warnings.append("Some runs come from a work tree that differs from its commit; record.json has the difference.")
    for study in studies.studies:
        for name, error in study.failures.items():
            warnings.append(f"{name} failed: {error}")
    if any(len(study.seeds) < 2 for study in studies.studies):
        warnings.append("One run a cell: nothing tells how much of a difference is chance. Use --repeats 3 or more.")
    return warnings


def show_warnings(warnings: Sequence[str]) -> str:
    items = "".join(f"<p>{escape(text)}</p>" for text in warnings)
    return f'<section class="warning" role="alert">{items}</section>' if items else ""


def show_record(studies: StudySet) -> str:
    """Algorithm, software, data, hardware and commands: enough for a reader to run it again."""
    parts = []
    for study in studies.studies:
        heading = f"<h3>{escape(study.study)}</h3>" if len(studies.studies) > 1 else ""
        rows = {
            "algorithm": _algorithm(study),
            "software": _lines(say_software(each) for each in study.environments),
            "data": _lines(f"content sha256 {digest}" for digest in study.data_sha256),
            "hardware": _lines(say_hardware(each) for each in study.environments),
            "runs": _runs(study),
            "command": f"<code>{escape(study.command)}</code>",
            "go on, or again": "<code>deepex study DIR</code> runs what is left; <code>deepex report DIR</code> writes "
            "this page anew; <code>deepex run DIR/runs/NAME/recipe.toml</code> repeats one run.",
        }
        body = "".join(f"<tr><th>{escape(name)}</th><td>{value}</td></tr>" for name, value in rows.items() if value)
        files = "".join(
            f"<details><summary>{name}</summary><pre>{escape(text)}</pre></details>"
            for name, text in (
                ("study.toml: what varies, what is judged", study.plan),
                ("recipe.toml: what is fixed", study.recipe),
            )
        )
        parts.append(f'{heading}<table class="record"><tbody>{body}</tbody></table>{files}')
    return "".join(parts)


def _algorithm(study: StudyOutcome) -> str:
    kinds = {"weak": "data.batch samples a rank (weak)", "strong": "data.batch samples of all ranks (strong)"}
    syncs = list(dict.fromkeys(cell.sync for cell in study.cells))
    told = [
        f"task {study.task}, {study.precision}, judged by {study.metric} on held-out samples",
        f"replicas mix by {', '.join(syncs)} (docs/sync.md has the mathematics)",
        f"scaling: {' and '.join(kinds[kind] for kind in study.scaling)}; an epoch goes once through the same data",
        f"seeds {', '.join(map(str, study.seeds))}; every cell once before any a second time",
    ]
    return _lines(told)


def say_software(each: Environment) -> str:
    state = {True: "clean", False: "with changes", None: "not under version control"}[each.clean]
    versions = ", ".join(f"{name} {version}" for name, version in each.versions.items())
    commit = f"deepex at commit {each.commit or 'unknown'} ({state})"
    return f"{commit}; {versions}; {' and '.join(['one rank alone', *each.launchers])}"


def say_hardware(each: Environment) -> str:
    return (
        f"{each.host}: {each.processor} ({each.instructions}), {each.memory_gib} GiB, "
        f"{say_plural(each.accelerators, 'accelerator')}, {each.system}; {say_plural(len(each.runs), 'run')}"
    )


def _runs(study: StudyOutcome) -> str:
    lines = [
        f"{run.name}: {say_plural(run.epochs, 'epoch')} of {say_duration(run.epoch_seconds)}, "
        f"{study.metric} {run.value:.4g}"
        for cell in study.cells
        for run in cell.runs
    ]
    return f"<details><summary>{say_plural(len(lines), 'run')}</summary>{_lines(lines)}</details>" if lines else ""


def _lines(texts: Iterable[str]) -> str:
    return "<br>".join(escape(text) for text in texts)


def _say_plainly(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name} {version}" for name, version in value.items())
    return str(value)[:12] if isinstance(value, str) and len(value) == 40 else str(value)
