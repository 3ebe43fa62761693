"""Images of samples as tiny PNGs inside the page. It knows nothing of what they show."""

import base64
import io
from html import escape
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deepex.record.illustration import ImageGrid

NEW_LINE = "\n"
LIGHT, DARK = (255, 255, 255), (16, 42, 92)  # the colours of 0 and 1; page.css repeats them in .scale

Pixels: TypeAlias = NDArray[np.float32] | NDArray[np.uint8]


def image_grid(grid: ImageGrid) -> str:
    """Samples as a grid that fits any width; numbers get their scale."""
    columns = grid.images.shape[1]
    cells = "".join(
        f'<figure class="{_kind(grid, row)}" style="--columns:{columns}">'
        + "".join(_image(image, name, label) for image, name in zip(images, grid.names, strict=True))
        + f"<figcaption>{escape(label).replace(NEW_LINE, '<br>')}</figcaption></figure>"
        for row, (images, label) in enumerate(zip(grid.images, grid.labels, strict=True))
    )
    height, width = grid.images.shape[2:4]
    scale = "" if grid.images.ndim == 5 else ', 0 <span class="ramp"></span> 1'
    least = max(150, min(140 * columns, 560))
    return (
        f'<div class="samples" style="--least:{least}px">{cells}</div>'
        f'<p class="scale">{width} × {height} values each{scale}</p>'
    )


def _kind(grid: ImageGrid, row: int) -> str:
    if grid.verdicts is None:
        return "sample"
    return "sample good" if grid.verdicts[row] else "sample wrong"


def _image(values: Pixels, name: str, label: str) -> str:
    data = base64.b64encode(encode_png(values)).decode()
    height, width = values.shape[:2]
    heading = f'<span class="name">{escape(name)}</span>' if name else ""
    words = escape(f"{name}: {label}" if name else label).replace(NEW_LINE, " ")
    return (
        f'<div>{heading}<img src="data:image/png;base64,{data}" width="{width}" height="{height}" alt="{words}"></div>'
    )


def encode_png(values: Pixels) -> bytes:
    """Numbers from 0 (light) to 1 (dark), or bytes of three colours, as a PNG with a pixel a value.

    >>> encode_png(np.zeros((2, 2), dtype=np.float32))[1:4]
    b'PNG'
    """
    if values.ndim == 3:
        image = Image.fromarray(np.ascontiguousarray(values))
    else:
        levels = np.round(255 * np.clip(np.nan_to_num(values), 0.0, 1.0)).astype(np.uint8)
        image = Image.fromarray(levels).convert("P")
        image.putpalette(np.linspace(LIGHT, DARK, 256).round().astype(np.uint8).tobytes())
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()
