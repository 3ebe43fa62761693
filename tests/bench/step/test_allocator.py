import pytest

from deepex.bench.step.allocator import has_jemalloc, preload_jemalloc


def test_jemalloc_comes_before_what_else_is_preloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    variables = preload_jemalloc()
    assert variables["LD_PRELOAD"].endswith(":libother.so")
    assert variables["LD_PRELOAD"].startswith("libjemalloc")
    assert "dirty_decay_ms:-1" in variables["MALLOC_CONF"]


def test_a_process_that_was_started_as_usual_has_none() -> None:
    assert not has_jemalloc()
