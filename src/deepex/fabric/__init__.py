"""How ranks talk: asynchronous collectives on whole buffers."""

from deepex.fabric.agreement import from_first, together
from deepex.fabric.fabric import Done, Fabric, SoloFabric, Work
from deepex.fabric.heartbeat import peer_error
from deepex.fabric.node import inside_node
from deepex.fabric.rendezvous import Rendezvous
from deepex.fabric.selection import FABRICS, FabricName, open_fabric
from deepex.fabric.shared.fabric import SharedFabric
from deepex.fabric.torch_fabric import TorchFabric
from deepex.fabric.traffic import Traffic, TrafficCount

__all__ = [
    "FABRICS",
    "Done",
    "Fabric",
    "FabricName",
    "Rendezvous",
    "SharedFabric",
    "SoloFabric",
    "TorchFabric",
    "Traffic",
    "TrafficCount",
    "Work",
    "from_first",
    "inside_node",
    "open_fabric",
    "peer_error",
    "together",
]
