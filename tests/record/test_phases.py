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
    phases = taken["phase_seconds"]
    assert taken["steps"] == 50
    assert abs(sum(phases.values()) / taken["step_wall_seconds"] - 1) < 0.02
    assert phases["backward"] > phases["forward"] > 0 == phases["sync"]
    assert clock.take()["steps"] == 0
