import torch

from deepex.doctor.compute import measure_copy


def test_a_copy_has_a_rate_fits_into_memory_and_leaves_torch_s_threads_alone() -> None:
    before = torch.get_num_threads()
    one, two = measure_copy((1, 2), cache_bytes=2**30, available_bytes=80e6)
    assert (one.threads, two.threads) == (1, 2)
    assert one.megabytes == two.megabytes == 10
    assert 0 < one.median_gb_per_second <= one.best_gb_per_second
    assert torch.get_num_threads() == before
