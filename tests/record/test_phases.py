from deepex.record.phases import Clock


def busy(times: int) -> int:
    return sum(range(times))


def test_phases_add_up_to_the_step() -> None:
    clock = Clock()
    for _ in range(50):
        with clock.step:
            with clock.forward:
                busy(20_000)
            with clock.backward:
                busy(40_000)
    taken = clock.take()
    phases = taken.phase_seconds
    assert taken.steps == 50
    assert abs(sum(phases.values()) / taken.step_wall_seconds - 1) < 0.02
    assert phases["forward"] > 0 < phases["backward"]
    assert phases["sync"] == 0
    assert clock.take().steps == 0


def test_what_lies_between_two_phases_belongs_to_the_later_one() -> None:
    clock = Clock()
    with clock.step:
        with clock.input:
            pass
        busy(100_000)
        with clock.forward:
            pass
    phases = clock.take().phase_seconds
    assert phases["forward"] > 10 * phases["input"]


def test_what_lies_between_two_steps_belongs_to_none() -> None:
    clock = Clock()
    for _ in range(2):
        with clock.step, clock.input:
            pass
        busy(100_000)
    with clock.evaluate:
        busy(100_000)
    taken = clock.take()
    assert taken.phase_seconds["evaluate"] > 10 * taken.step_wall_seconds
    assert taken.phase_seconds["input"] <= taken.step_wall_seconds
