import pytest

from deepex.errors import ConfigError
from deepex.sync import parse
from deepex.sync.local import Local


def test_the_written_form_names_a_strategy() -> None:
    strategies = [parse("local:8"), parse("local:epoch")]
    assert [s.interval for s in strategies if isinstance(s, Local)] == [8, None]
    assert parse("allreduce").staleness == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alreduce", "Did you mean 'allreduce'? Allowed: allreduce, "),
        ("allreduce:4", "takes no argument"),
        ("local:0", "from 1"),
        ("local", "from 1"),
        ("local:-3", "from 1"),
        ("local:epochs", "or 'epoch'"),
    ],
)
def test_a_wrong_form_says_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(text)
    assert said in str(raised.value)
