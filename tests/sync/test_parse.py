import pytest

from deepex.errors import ConfigError
from deepex.sync import STRATEGIES, SyncTraits, find_traits, parse, say_forms
from deepex.sync.local import Local
from deepex.sync.spec import SyncSpec


def test_the_written_form_names_a_strategy() -> None:
    strategies = [parse("local:8"), parse("local:epoch")]
    assert [s.interval for s in strategies if isinstance(s, Local)] == [8, None]
    assert parse("allreduce").traits.staleness == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alreduce", "Did you mean 'allreduce'? Allowed: "),
        ("lokal:epoch", "Did you mean 'local:epoch'? Allowed: "),
        ("lokal:epoch", "As code of your own, 'lokal:epoch': there is no module 'lokal'"),
        ("hierarchical(allreduce,no.py:Mine)", "there is no file"),
        ("allreduce:4", "takes no argument"),
        ("local:0", "from 1"),
        ("local", "from 1"),
        ("local:-3", "from 1"),
        ("local:epochs", "or 'epoch'"),
        ("local:8,bucket=1", "Set after=1 too"),
        ("lagged(allreduce,local:8)", "lagged takes no strategies in brackets"),
        ("hierarchical(allreduce)", "brackets hold two strategies, not 1"),
        ("hierarchical(local:8,allreduce)", "Allowed inside: allreduce, lagged"),
        ("hierarchical(allreduce,async)", "between nodes there can be allreduce, lagged, local:H or background:H"),
        ("hierarchical(allreduce,local:8,after=1)", "Leave after= out"),
        ("hierarchical(allreduce,local:8)+zip", "sync 'hierarchical(allreduce,local:8)+zip': unknown compression"),
        ("auto+bf16", "auto chooses with numbers as they are"),
    ],
)
def test_a_wrong_form_says_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(text)
    assert said in str(raised.value)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_line_of_the_table_is_whole(name: str) -> None:
    strategy = STRATEGIES[name]
    assert SyncSpec.parse(strategy.example).name == name
    assert parse(strategy.example).num_training_ranks(1) == 1
    with pytest.raises(ConfigError) as raised:
        parse("nothing like it")
    for form in strategy.forms:
        assert form.startswith(name)
        assert form in say_forms()
        assert form in str(raised.value)


TRAITS = {
    "allreduce": SyncTraits(staleness=0, shares_gradients=True, repeats=True, interval=1),
    "allreduce+topk:0.1": SyncTraits(shares_gradients=True, repeats=True, interval=1),
    "lagged": SyncTraits(staleness=1, shares_gradients=True, repeats=True, interval=1, hides_messages=True),
    "local:8,outer=nesterov": SyncTraits(staleness=7, repeats=True, interval=8),
    "local:epoch": SyncTraits(repeats=True, once_an_epoch=True),
    "background:8": SyncTraits(staleness=15, repeats=True, interval=8, hides_messages=True),
    "hierarchical(lagged,local:8)": SyncTraits(staleness=8, repeats=True, interval=8, inner_interval=1),
    "hierarchical(allreduce,local:epoch)": SyncTraits(repeats=True, once_an_epoch=True, inner_interval=1),
    "hybrid:2,every=3": SyncTraits(shares_gradients=True, interval=3, inner_interval=1, compresses_inner=True),
    "async": SyncTraits(interval=1, inner_interval=1),
    "auto": SyncTraits(chooses_interval=True),
    "somebody.elses:strategy": SyncTraits(),
}


@pytest.mark.parametrize("text", TRAITS)
def test_what_a_strategy_promises_is_known_from_its_written_form(text: str) -> None:
    assert find_traits(text) == TRAITS[text]
