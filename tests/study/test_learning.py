"""Learning speedup is time to equal quality, or words where there is none."""

import pytest

from deepex.record.study_rows import RunFacts
from deepex.study.learning import find_saturation, judge_cutoff
from tests.rows import run_facts


def run(epoch_seconds: float, *epochs_to: int | None, cores: float = 1.0) -> RunFacts:
    seconds_to = tuple(None if number is None else number * epoch_seconds for number in epochs_to)
    return run_facts(epoch_seconds=epoch_seconds, epochs_to=epochs_to, seconds_to=seconds_to, cores=cores)


def test_twice_as_fast_an_epoch_with_twice_the_epochs_gains_nothing() -> None:
    found = judge_cutoff(0, 0.1, [run(1.0, 20, cores=2.0)], [run(2.0, 10)])
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(1.0)
    assert found.epochs is not None
    assert found.samples is not None
    assert found.core_hours is not None
    assert found.epochs.value == pytest.approx(20)
    assert found.samples.value == pytest.approx(20_000)
    assert found.core_hours.value == pytest.approx(20 * 2 / 3600)


def test_each_cutoff_counts_its_own_epochs() -> None:
    runs, alone = [run(1.0, 2, 20), run(1.0, 8, 20)], [run(2.0, 4, 5), run(2.0, 4, 5)]
    easy, hard = (judge_cutoff(place, 0.1, runs, alone).speedup for place in (0, 1))
    assert easy is not None
    assert hard is not None
    assert easy.value == pytest.approx(2.0)  # (2 x 4) / geometric mean of 2 and 8
    assert hard.value == pytest.approx(0.5)


def test_a_target_that_one_run_missed_gives_no_number() -> None:
    found = judge_cutoff(0, 0.1, [run(1.0, 20), run(1.0, None)], [run(2.0, 10)])
    assert found.why_no_speedup == "not reached (1 of 2 runs)"
    assert (found.speedup, found.epochs, found.seconds, found.core_hours) == (None, None, None, None)


def test_a_run_that_failed_counts_as_one_that_did_not_get_there() -> None:
    found = judge_cutoff(0, 0.1, [run(1.0, 20)], [run(2.0, 10)], failed=(2, 0))
    assert found.why_no_speedup == "not reached (1 of 3 runs)"
    found = judge_cutoff(0, 0.1, [run(1.0, 20)], [run(2.0, 10)], failed=(0, 1))
    assert found.why_no_speedup == "not reached by what it is compared with"


def test_a_base_that_missed_it_gives_no_number_either() -> None:
    found = judge_cutoff(0, 0.1, [run(1.0, 20)], [run(2.0, None)])
    assert found.why_no_speedup == "not reached by what it is compared with"
    assert found.epochs is not None


def test_saturation_is_reached_by_half_at_the_critical_batch() -> None:
    found = find_saturation(640.0, 64)

    def gain(ranks: float) -> float:
        return (1 + found.critical_batch / found.batch) / (1 + found.critical_batch / (found.batch * ranks))

    assert gain(found.critical_ranks) == pytest.approx(found.most_learning_speedup / 2)
    assert gain(1e9) == pytest.approx(found.most_learning_speedup)
