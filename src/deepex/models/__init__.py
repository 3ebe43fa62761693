"""Plain networks, one a file. They know tensors, and nothing of ranks, data or training."""

from deepex.models.alexnet import AlexNet
from deepex.models.cosmoflow import CosmoFlow
from deepex.models.cvae import CVAE
from deepex.models.deeplab import DeepLab
from deepex.models.lenet import LeNet5
from deepex.models.resnet import ResNet14, ResNet18, ResNet50
from deepex.models.vgg import VGG16

__all__ = [
    "CVAE",
    "VGG16",
    "AlexNet",
    "CosmoFlow",
    "DeepLab",
    "LeNet5",
    "ResNet14",
    "ResNet18",
    "ResNet50",
]
