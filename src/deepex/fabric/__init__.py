"""How ranks talk: asynchronous collectives on whole buffers."""

from deepex.fabric.agree import from_first, together
from deepex.fabric.choose import FABRICS, FabricName, open_fabric
from deepex.fabric.fabric import Done, Fabric, SoloFabric, Work
from deepex.fabric.meeting import Meeting
from deepex.fabric.meter import Meter
from deepex.fabric.node import inside_node
from deepex.fabric.pulse import peer_error
from deepex.fabric.shared_fabric import SharedFabric
from deepex.fabric.torch_fabric import TorchFabric

__all__ = [
    "FABRICS",
    "Done",
    "Fabric",
    "FabricName",
    "Meeting",
    "Meter",
    "SharedFabric",
    "SoloFabric",
    "TorchFabric",
    "Work",
    "from_first",
    "inside_node",
    "open_fabric",
    "peer_error",
    "together",
]
