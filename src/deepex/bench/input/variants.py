"""The ways to get batches: torch's DataLoader as one writes it, webdataset, deepex's feed, and a mere copy in memory.

Each delivers the same samples as float32 batches of the same size, in a new order every epoch. Peers and decoders are
imported only where they run.
"""

import io
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from deepex.bench.input.data import Stored
from deepex.data import Feed, Plan, Preparation
from deepex.data.feeding.cache import room_for_samples
from deepex.data.feeding.convert import Convert
from deepex.data.packing.packed import PackedSource
from deepex.data.sources import open_source

POOL_BYTES = 256 << 20  # what is copied from: more than caches hold
COPY_BUFFERS = 4  # what is copied into, one after the other: as many as the feed has
SHUFFLED = 1000  # samples that webdataset draws the next one from, as its documentation has it
WEB_WORKERS = 2  # more samples a second than with none or one, on two cores


class Delivery(Protocol):
    """A way to get batches."""

    def epoch(self) -> int:
        """Take all batches of an epoch, one after another; how many samples they held."""

    def rest(self) -> None:
        """Give up what was read ahead: the time between turns must not help."""

    def close(self) -> None:
        """End processes and threads."""


class FeedDelivery:
    """deepex's feed as a training run has it, with or without samples kept in memory.

    With them, all samples stand in memory after the first epoch, as stored; they are still converted batch by batch.
    Without, each epoch reads the files as the first one does, and as every one does of data that memory can't hold.
    """

    def __init__(self, stored: Stored, *, cached: bool) -> None:
        source = PackedSource(stored.path) if stored.path.suffix == ".h5" else open_source(stored.path)
        preparation = Preparation(convert={stored.field: Convert()} if stored.is_bytes else {})
        self.plan = Plan(num_samples=len(source), batch=stored.batch)
        self.feed = Feed(source, self.plan, torch.device("cpu"), preparation)
        self.number = 0
        if cached:
            self.feed.start_cache(room_for_samples(None, 1))

    def epoch(self) -> int:
        for step in range(self.plan.steps_per_epoch):
            self.feed.batch(self.number, step)
        self.number += 1
        return self.plan.steps_per_epoch * self.plan.batch

    def rest(self) -> None:
        self.feed.close()

    def close(self) -> None:
        self.feed.close()


class LoaderDelivery:
    """Batches of a DataLoader; its processes live from turn to turn, and read nothing between epochs."""

    def __init__(self, loader: Iterable[Tensor]) -> None:
        self.loader: Iterable[Tensor] | None = loader

    def epoch(self) -> int:
        assert self.loader is not None
        return sum(len(batch) for batch in self.loader)

    def rest(self) -> None:
        """Nothing to give up."""

    def close(self) -> None:
        self.loader = None  # a DataLoader ends its processes when nothing refers to it


class CopyDelivery:
    """Float32 batches copied from place to place in memory by torch: what no input can much exceed.

    On all cores unless `threads` are given.
    """

    def __init__(self, stored: Stored, *, threads: int | None = None) -> None:
        self.threads = threads or torch.get_num_threads()
        size = stored.batch * stored.delivered_bytes // 4
        self.places = torch.ones(max(1, POOL_BYTES // 4 // size), size)
        self.buffers = torch.ones(COPY_BUFFERS, size)
        self.steps, self.batch = stored.steps, stored.batch

    def epoch(self) -> int:
        usual = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        for step in range(self.steps):
            self.buffers[step % COPY_BUFFERS].copy_(self.places[step % len(self.places)])
        torch.set_num_threads(usual)
        return self.steps * self.batch

    def rest(self) -> None:
        """Nothing to give up."""

    def close(self) -> None:
        """Nothing to end."""


class ArrayDataset(Dataset[Tensor]):
    """One sample at a time from an HDF5 file or a NumPy map, opened where it is read."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.values: Any = None  # an open HDF5 file does not survive a fork

    def __len__(self) -> int:
        return self.stored.num_samples

    def __getitem__(self, index: int) -> Tensor:
        if self.values is None:
            self.values = _open_values(self.stored)
        return torch.from_numpy(self.values[index].astype(np.float32, copy=False))


class ImageDataset(Dataset[Tensor]):
    """One PNG at a time, by OpenCV where it is installed, else by Pillow."""

    def __init__(self, stored: Stored) -> None:
        self.files = [str(file) for file in sorted(stored.path.iterdir())]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(_read_image(self.files[index]).astype(np.float32))


def load(stored: Stored, workers: int) -> Delivery:
    """torch's DataLoader with its defaults, shuffled, with persistent processes if there are any."""
    dataset: Dataset[Tensor] = ImageDataset(stored) if stored.path.is_dir() else ArrayDataset(stored)
    return LoaderDelivery(
        DataLoader(dataset, batch_size=stored.batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    )


def load_web(stored: Stored) -> Delivery:
    """webdataset on tar files: shards and samples shuffled, decoded and batched in its processes."""
    web: Any = import_module("webdataset")
    samples = web.WebDataset(list(stored.shards), shardshuffle=len(stored.shards)).shuffle(SHUFFLED)
    tensors = samples.map(partial(_sample_tensor, shape=stored.shape))
    batches = tensors.batched(stored.batch, collation_fn=torch.stack)
    return LoaderDelivery(DataLoader(batches, batch_size=None, num_workers=WEB_WORKERS, persistent_workers=True))


# Those with processes first: a process is best forked before there are threads.
VARIANTS: dict[str, Callable[[Stored], Delivery]] = {
    "dataloader-0": partial(load, workers=0),
    "dataloader-1": partial(load, workers=1),
    "dataloader-2": partial(load, workers=2),
    "webdataset": load_web,
    "deepex-uncached": partial(FeedDelivery, cached=False),
    "deepex": partial(FeedDelivery, cached=True),
    "memcpy": CopyDelivery,
    "memcpy-1": partial(CopyDelivery, threads=1),
}


def variants_of(stored: Stored) -> list[str]:
    """The ways to get these samples here."""
    has_web = stored.shards and find_spec("webdataset") is not None
    return [name for name in VARIANTS if name != "webdataset" or has_web]


def _open_values(stored: Stored) -> Any:
    if stored.path.suffix == ".h5":
        return h5py.File(stored.path, "r")[stored.field]
    return np.asarray(np.load(stored.path, mmap_mode="r"))  # a plain array: a memmap makes each row one, which costs


@cache
def opencv() -> Any:
    """The module, if it is installed."""
    return import_module("cv2") if find_spec("cv2") else None


def _read_image(file: str) -> NDArray[np.uint8]:
    decoder = opencv()
    image = np.asarray(Image.open(file)) if decoder is None else decoder.imread(file, decoder.IMREAD_UNCHANGED)
    return image[None]


def _decode_image(data: bytes) -> NDArray[np.uint8]:
    decoder = opencv()
    if decoder is None:
        return np.asarray(Image.open(io.BytesIO(data)))[None]
    image: NDArray[np.uint8] = decoder.imdecode(np.frombuffer(data, dtype=np.uint8), decoder.IMREAD_UNCHANGED)[None]
    return image


def _sample_tensor(sample: dict[str, Any], shape: tuple[int, ...]) -> Tensor:
    """A member of a tar file: a PNG, or the bytes of an image."""
    is_png = "png" in sample
    image = _decode_image(sample["png"]) if is_png else np.frombuffer(sample["bin"], dtype=np.uint8).reshape(shape)
    return torch.from_numpy(image.astype(np.float32))
