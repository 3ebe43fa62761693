"""Images of a source as a tree of PNG files, train/CLASS/NAME.png and val/CLASS/NAME.png, as other programs read them.

A picture gets its name when it is complete, so whoever starts again writes the rest. It knows fields, and no task.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from PIL import Image

from deepex.data.packing.block import explained_writing
from deepex.data.packing.job import Tell, silent
from deepex.data.packing.pack import follow_starter
from deepex.data.source import Source, allocate
from deepex.errors import DataError
from deepex.fabric import Fabric, together
from deepex.files import replacing
from deepex.sample import SampleSpec

FIELDS = ("image", "label", "validation")
LEAST_SAMPLES = 500  # that one rank writes before it tells how far it is


def write_image_tree(
    source: Source,
    folder: Path,
    *,
    ranks: int = 1,
    group: int = 1,
    tell: Tell = silent,
    fabric: Fabric | None = None,
) -> None:
    """Write all samples as pictures, by ranks of this machine or by those of a launcher.

    Arguments:
        source: with the fields `image` (1 or 3 channels of bytes), `label` with named classes, and `validation`.
        group: so many neighbouring samples are read at once by one rank.
    """
    missing = [name for name in FIELDS if name not in source.spec.fields]
    if missing or not source.spec.fields["label"].classes or source.spec.fields["image"].dtype != "uint8":
        raise DataError(
            f"an image tree needs images of bytes, named classes and a split. This source has "
            f"{', '.join(source.spec.fields)}. Pack it instead, without --png."
        )
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file. Give the folder that the image tree shall stand in.")
    size = -(-LEAST_SAMPLES // group) * group
    chunks = [range(first, min(first + size, len(source))) for first in range(0, len(source), size)]
    if fabric is not None and fabric.world.size > 1:
        mine = chunks[fabric.world.rank :: fabric.world.size]
        together(fabric, lambda: _write_chunks(source, folder, mine, len(source), fabric.world.size, tell))
    elif ranks == 1:
        _write_chunks(source, folder, chunks, len(source), 1, tell)
    else:
        with _pool(ranks) as pool:
            running = {pool.submit(_write, source, folder, chunk): len(chunk) for chunk in chunks}
            done = 0
            for future in as_completed(running):
                future.result()
                done += running[future]
                tell(done, len(source))


def _write_chunks(
    source: Source, folder: Path, chunks: Sequence[range], total: int, num_ranks: int, tell: Tell
) -> None:
    done = 0
    for chunk in chunks:
        _write(source, folder, chunk)
        done += len(chunk)
        tell(min(total, done * num_ranks), total)


def _write(source: Source, folder: Path, chunk: range) -> None:
    """Write those pictures of a chunk that are not there."""
    facts = {name: source.spec.fields[name] for name in ("label", "validation")}
    known = allocate(SampleSpec(fields=facts), len(chunk))
    source.read(chunk, known)
    classes = source.spec.fields["label"].classes
    paths = [
        _place(folder, source.name(index), classes[label], bool(held_back))
        for index, label, held_back in zip(chunk, known["label"].tolist(), known["validation"].tolist(), strict=True)
    ]
    rows = [row for row, path in enumerate(paths) if not path.exists()]
    if not rows:
        return
    images = allocate(SampleSpec(fields={"image": source.spec.fields["image"]}), len(rows))
    source.read([chunk[row] for row in rows], images)
    with explained_writing(folder):
        for row, image in zip(rows, images["image"].numpy(), strict=True):
            path = paths[row]
            path.parent.mkdir(parents=True, exist_ok=True)
            picture = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
            with replacing(path) as temporary:
                Image.fromarray(picture).save(temporary, format="PNG")


def _place(folder: Path, name: str, class_name: str, held_back: bool) -> Path:
    """Where a sample's picture stands: its name without the class in front and an ending, slashes as underscores."""
    stem = Path(name.removeprefix(f"{class_name}/")).with_suffix("").as_posix().replace("/", "_")
    return folder / ("val" if held_back else "train") / class_name / f"{stem}.png"


@contextmanager
def _pool(ranks: int) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(ranks, get_context("spawn"), initializer=follow_starter)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
