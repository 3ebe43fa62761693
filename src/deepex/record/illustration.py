"""What a task shows of its model: pictures as values, and their files in a run directory.

illustrations/illustration.json has the words, illustrations/arrays.npz the numbers, which any program reads. It knows
no model, and nothing of how a picture is drawn.
"""

import dataclasses
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deepex.errors import RunFolderError
from deepex.record.folder import RunFolder

WORDS_FILE, ARRAYS_FILE = "illustrations/illustration.json", "illustrations/arrays.npz"
ARRAY = "array"  # the key of an array's name, where the words have an array's place


@dataclass(frozen=True, kw_only=True)
class ImageGrid:
    """Samples as images, K of each side by side with a name each, and a label below; verdicts colour the labels.

    Images are N x K x H x W numbers from 0 to 1, or N x K x H x W x 3 bytes of red, green and blue.
    """

    title: str
    caption: str
    names: tuple[str, ...]
    images: NDArray[np.float32] | NDArray[np.uint8]
    labels: list[str]
    verdicts: list[bool] | None = None


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """How often samples of one class (rows) were taken for another (columns)."""

    title: str
    caption: str
    names: tuple[str, ...]
    counts: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ScatterPanel:
    """What was predicted against what is true (N each), with a note on how well."""

    name: str
    true: NDArray[np.float32]
    predicted: NDArray[np.float32]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """Predicted against true, a panel a quantity."""

    title: str
    caption: str
    panels: list[ScatterPanel]


@dataclass(frozen=True, kw_only=True)
class PointCloud:
    """Points in three dimensions (N x 3), and quantities (N each) to colour them by, names with units."""

    title: str
    caption: str
    axes: tuple[str, str, str]
    points: NDArray[np.float32]
    colours: Mapping[str, NDArray[np.float32]]


Picture: TypeAlias = ImageGrid | Matrix | PointCloud | Scatter
PICTURES: Mapping[str, type[Picture]] = {kind.__name__: kind for kind in (ImageGrid, Matrix, PointCloud, Scatter)}


@dataclass(frozen=True, kw_only=True)
class Illustration:
    """What a trained model shows: figures by name for programs, a sentence about them, pictures for the page."""

    findings: Mapping[str, float]
    sentence: str
    pictures: list[Picture]


def write_illustration(folder: RunFolder, illustration: Illustration) -> None:
    """Write an illustration into a run directory, whole or not at all: its words come last."""
    arrays: dict[str, NDArray[Any]] = {}
    words = {
        "findings": dict(illustration.findings),
        "sentence": illustration.sentence,
        "pictures": [
            {"kind": type(picture).__name__, **_take_apart(picture, f"{number}", arrays)}
            for number, picture in enumerate(illustration.pictures)
        ],
    }
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    with folder.writing():
        (folder.path / ARRAYS_FILE).parent.mkdir(exist_ok=True)
    folder.write_bytes(ARRAYS_FILE, content.getvalue())
    folder.write_json(WORDS_FILE, words)


def read_illustration(folder: RunFolder) -> Illustration | None:
    """The illustration in a run directory; None if there is none."""
    if not (folder.path / WORDS_FILE).exists():
        return None
    try:
        words = folder.read_json(WORDS_FILE)
        with np.load(folder.path / ARRAYS_FILE, allow_pickle=False) as arrays:
            pictures = [_put_together(tree, arrays) for tree in words["pictures"]]
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, json.JSONDecodeError) as error:
        raise RunFolderError(
            f"{folder.path / WORDS_FILE} or the arrays beside it are damaged: {error}. Delete that folder to have a "
            "page without pictures."
        ) from error
    return Illustration(findings=words["findings"], sentence=words["sentence"], pictures=pictures)


def _take_apart(value: Any, name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Plain values, with each array replaced by the name under which it went into `arrays`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {key: _take_apart(each, f"{name}.{key}", arrays) for key, each in fields}
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {ARRAY: name}
    if isinstance(value, Mapping):
        return {key: _take_apart(each, f"{name}.{key}", arrays) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_take_apart(each, f"{name}.{number}", arrays) for number, each in enumerate(value)]
    return value


def _put_together(tree: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Picture:
    values = {key: _fill_in(value, arrays) for key, value in tree.items() if key != "kind"}
    kind = PICTURES[tree["kind"]]
    if kind is Scatter:
        values["panels"] = [ScatterPanel(**panel) for panel in values["panels"]]
    for key in ("names", "axes"):
        if key in values:
            values[key] = tuple(values[key])
    return kind(**values)


def _fill_in(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if isinstance(value, Mapping):
        is_array = set(value) == {ARRAY} and isinstance(value[ARRAY], str)
        return arrays[value[ARRAY]] if is_array else {key: _fill_in(each, arrays) for key, each in value.items()}
    return [_fill_in(each, arrays) for each in value] if isinstance(value, list) else value
