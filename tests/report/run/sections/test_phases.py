"""The bars of phases, where a browser would not show what went wrong."""

import numpy as np

from deepex.record.phases import BESIDE_PHASES, STEP_PHASES
from deepex.report.run.run_data import RankTime
from deepex.report.run.sections.phases import MAX_BARS, choose_ranks, phase_bars


def make_rank(rank: int, wall_seconds: float) -> RankTime:
    phases = dict.fromkeys(STEP_PHASES, wall_seconds / 5) | dict.fromkeys(BESIDE_PHASES, 0.1)
    return RankTime(rank=rank, host="n1", wall_seconds=wall_seconds, phase_seconds=phases)


def test_of_very_many_ranks_the_quickest_and_the_slowest_are_shown() -> None:
    ranks = [make_rank(number, 10.0 + (number * 37 % 1000) / 1000) for number in range(1000)]
    shown = choose_ranks(ranks)
    walls = [rank.wall_seconds for rank in ranks]
    assert len(shown) == MAX_BARS
    assert {min(walls), max(walls)} <= {rank.wall_seconds for rank in shown}
    assert [rank.rank for rank in shown] == sorted(rank.rank for rank in shown)


def test_a_second_is_equally_long_in_steps_and_beside_them() -> None:
    layout = phase_bars([make_rank(0, 100.0), make_rank(1, 101.0)])["layout"]
    lengths = [
        axis["range"][1] / (axis["domain"][1] - axis["domain"][0]) for axis in (layout["xaxis"], layout["xaxis2"])
    ]
    assert np.isclose(lengths[0], lengths[1])
