"""How ranks talk: asynchronous collectives on whole buffers."""

from deepex.fabric.agree import from_first, together
from deepex.fabric.fabric import Done, Fabric, SoloFabric, Work
from deepex.fabric.torch_fabric import TorchFabric

__all__ = ["Done", "Fabric", "SoloFabric", "TorchFabric", "Work", "from_first", "together"]
