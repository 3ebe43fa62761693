"""Two real ranks that do not get along. That they do is in test_doctor_integration.py."""

import pytest

from deepex.doctor.allreduce import check_fabric


def test_ranks_that_take_too_long_are_ended_and_told() -> None:
    checked = check_fabric("torch", timeout_seconds=0.1)
    assert not checked.works
    assert checked.reason == "its ranks were not done within 0.1 s"
    assert checked.times == ()


def test_a_fabric_without_a_network_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nosuch0")
    checked = check_fabric("torch")
    assert not checked.works
    assert "nosuch0" in str(checked.reason)
