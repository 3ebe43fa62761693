"""Other strategies for somebody who has one: with fewer syncs, with hidden messages, with half the bytes.

Questions and answers are texts, as people write a strategy; None where there is no such strategy. What a change would
bring, a diagnosis knows.
"""

from collections.abc import Iterator
from dataclasses import replace

from deepex.errors import ConfigError
from deepex.sync.hierarchical import split_levels
from deepex.sync.parse import find_traits, parse
from deepex.sync.spec import SyncSpec

FIRST = "local:8"
"""What to begin with on several ranks: few messages, however slow they are, and replicas that stay near each other."""

RARER = {"allreduce": "local", "lagged": "background"}  # by name: what does the same after every so many steps
HIDING = {"allreduce": "lagged", "local": "background"}  # what does the same in a later step
HALF = "bf16"


def sync_every(text: str, steps: int | None) -> str | None:
    """The same strategy, with a sync after every so many steps, or once an epoch if `steps` is None.

    >>> sync_every("allreduce+bf16", 8), sync_every("local:8,outer=nesterov", None), sync_every("hybrid:2", 8)
    ('local:8+bf16', 'local:epoch,outer=nesterov', 'hybrid:2,every=8')
    >>> sync_every("hierarchical(allreduce,lagged)", 8), sync_every("auto", 8)
    ('hierarchical(allreduce,background:8)', None)
    """
    for spec in _write_interval(SyncSpec.parse(text), steps):
        traits = find_traits(spec.text)
        if traits.once_an_epoch if steps is None else traits.interval == steps:
            return spec.text
    return None


def hide_messages(text: str) -> str | None:
    """The same strategy, with messages that travel while ranks compute.

    >>> hide_messages("allreduce+bf16"), hide_messages("local:8"), hide_messages("hierarchical(allreduce,local:8)")
    ('lagged+bf16', 'background:8', 'hierarchical(allreduce,background:8)')
    """
    spec = SyncSpec.parse(text)
    if spec.name == "hierarchical":
        return _change_outer(spec, hide_messages(split_levels(spec)[1]))
    hiding = SyncSpec(name=HIDING.get(spec.name, ""), argument=spec.argument, compression=spec.compression).text
    return hiding if find_traits(hiding).hides_messages else None


def halve_bytes(text: str) -> str | None:
    """The same strategy, with numbers of 16 bits in its messages; None if they are compressed already.

    >>> halve_bytes("local:8"), halve_bytes("local:8+topk:0.01"), halve_bytes("auto")
    ('local:8+bf16', None, None)
    """
    spec = SyncSpec.parse(text)
    return _keep_if_known(replace(spec, compression=HALF).text) if not spec.compression else None


def _write_interval(spec: SyncSpec, steps: int | None) -> Iterator[SyncSpec]:
    """The places where strategies have their interval; in most of them a given one has none, or something else."""
    if spec.name == "hierarchical":
        changed = _change_outer(spec, sync_every(split_levels(spec)[1], steps))
        if changed is not None:
            yield SyncSpec.parse(changed)
        return
    interval = "epoch" if steps is None else str(steps)
    yield replace(spec, argument=interval)
    yield spec.with_options(every=interval)
    if spec.name in RARER:
        yield SyncSpec(name=RARER[spec.name], argument=interval, compression=spec.compression)


def _change_outer(spec: SyncSpec, outer: str | None) -> str | None:
    """The same two levels with another strategy between nodes."""
    if outer is None:
        return None
    return _keep_if_known(replace(spec, inside=(split_levels(spec)[0], outer)).text)


def _keep_if_known(text: str) -> str | None:
    try:
        parse(text)
    except ConfigError:
        return None
    return text
