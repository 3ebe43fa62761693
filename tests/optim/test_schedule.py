from typing import Any

import pytest

from deepex.errors import ConfigError
from deepex.optim import ScheduleConfig


def test_a_warm_up_grows_to_the_whole_rate_and_a_cosine_falls_to_its_end() -> None:
    schedule = ScheduleConfig(name="cosine", warmup_epochs=4.0, warmup_from=0.2, final=0.1)
    shares = [schedule.share(epoch, 20) for epoch in (0, 2, 4, 12, 20)]
    assert shares == pytest.approx([0.2, 0.6, 1.0, 0.55, 0.1])
    falling = [schedule.share(4 + step / 10, 20) for step in range(161)]
    assert falling == sorted(falling, reverse=True)


def test_the_benchmarks_steps_multiply_one_after_the_other() -> None:
    schedule = ScheduleConfig(name="steps", warmup_epochs=4.0, milestones=(32.0, 64.0), factors=(0.25, 0.5))
    assert [schedule.share(epoch, 128) for epoch in (4, 31.9, 32, 63, 64, 127)] == [1, 1, 0.25, 0.25, 0.125, 0.125]


@pytest.mark.parametrize(
    "wrong",
    [
        {"warmup_epochs": -1.0},
        {"warmup_from": 1.5},
        {"name": "cosine", "final": -0.1},
        {"name": "steps"},
        {"name": "steps", "milestones": (2.0, 1.0), "factors": (0.5, 0.5)},
        {"name": "steps", "milestones": (1.0, 2.0), "factors": (0.5,)},
        {"name": "steps", "milestones": (1.0,), "factors": (0.0,)},
        {"name": "cosine", "milestones": (1.0,), "factors": (0.5,)},
    ],
)
def test_a_schedule_that_does_not_hold_together_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Allowed"):
        ScheduleConfig(**wrong)
