from torch._C._distributed_c10d import TCPStore

from deepex.fabric import Rendezvous
from deepex.world import World

WORLD = World(rank=0, size=1, local_rank=0, local_size=1, launcher="test")


def meet(port: int, text: str) -> list[str]:
    return Rendezvous(WORLD, address=f"127.0.0.1:{port}", agent_store=True, timeout_seconds=10).exchange("here", text)


def test_runs_of_one_process_meet_in_one_store_and_in_one_that_took_its_address() -> None:
    served = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = served.port
    assert [meet(port, "first"), meet(port, "second")] == [["first"], ["second"]]
    del served
    served = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    assert meet(port, "third") == ["third"]
    assert served.port == port
