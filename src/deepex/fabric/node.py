"""The ranks of one node among those of a fabric: by shared memory where their processors compute."""

from deepex.fabric.fabric import Fabric
from deepex.fabric.shared_fabric import SharedFabric


def inside_node(fabric: Fabric) -> Fabric:
    """A fabric among the ranks that stand on this rank's host, in their order; all ranks of `fabric` call it."""
    hosts = fabric.gather(fabric.world.host)
    here = [rank for rank, host in enumerate(hosts) if host == fabric.world.host]
    if isinstance(fabric, SharedFabric) or fabric.world.device != "cpu" or fabric.meeting is None:
        return fabric.group(here)
    return SharedFabric(fabric.meeting, [fabric.ranks[rank] for rank in here])
