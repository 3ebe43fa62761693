"""The ranks of one node among those of a fabric: by shared memory where their processors compute.

It knows hosts by their names.
"""

from contextlib import suppress

from deepex.errors import ConfigError
from deepex.fabric.fabric import Fabric
from deepex.fabric.shared.fabric import SharedFabric


def inside_node(fabric: Fabric) -> Fabric:
    """A fabric among the ranks that run on this rank's host, in their order; all ranks of `fabric` call it."""
    hosts = fabric.gather(fabric.world.host)
    here = [rank for rank, host in enumerate(hosts) if host == fabric.world.host]
    if not isinstance(fabric, SharedFabric) and fabric.world.device == "cpu" and fabric.rendezvous is not None:
        with suppress(ConfigError):  # in containers of their own they can't see each other's memory
            return SharedFabric(fabric.rendezvous, [fabric.ranks[rank] for rank in here])
    return fabric.group(here)
