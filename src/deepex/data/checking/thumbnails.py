"""Fields of samples as small pictures: photographs as they are, other arrays from light to dark, curves as lines.

It decides what of a field can be seen (three colours, some channels, the middle slice of a volume) and on which scale,
the same for all samples of a sheet. It knows arrays, and nothing of pages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from deepex.errors import DataError
from deepex.sample import Field, SampleSpec

Kind = Literal["colour", "grey", "scale", "line"]
Colour = tuple[int, int, int]

LIGHT, DARK = (255, 255, 255), (16, 42, 92)  # the colours of a scale's ends, as on a report's page
WRONG = (224, 72, 40)  # what is no number
LINES: tuple[Colour, ...] = (DARK, (214, 120, 30), (34, 139, 120))
MOST_THUMBNAILS, MOST_CHANNELS = 4, 3
LEAST_LENGTH = 16  # shorter rows of numbers are no curves; they are drawn if there is nothing else
HUGE_RANGE = 1000  # the largest value over the typical one, from which on a scale is logarithmic
MOST_VALUES = 1 << 20  # so many tell a scale


@dataclass(frozen=True, kw_only=True)
class Thumbnail:
    """What is shown of a field: which channels (none: it has none), as what, and how that is called."""

    field: str
    channels: tuple[int, ...]
    kind: Kind
    title: str
    unit: str = ""

    def take(self, values: NDArray[Any]) -> NDArray[Any]:
        """Of the values of one sample, those that are shown: H x W, 3 x H x W for colours, L x N for lines."""
        if self.kind == "colour":
            return values[:3]
        if self.kind == "line":
            return values[list(self.channels)] if self.channels else values.reshape(1, -1)
        plane = values[self.channels[0]] if self.channels else values
        while plane.ndim > 2:
            plane = plane[len(plane) // 2]
        return plane


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Which values are light and dark. A logarithmic scale is straight below `typical`, on both sides of 0."""

    low: float
    high: float
    typical: float = 0.0

    @classmethod
    def of(cls, values: Sequence[NDArray[Any]], percent: float = 98.0) -> "Scale":
        """The scale of the middle so many percent of values, so that a few extreme ones do not spoil it.

        >>> Scale.of([np.arange(101.0)])
        Scale(low=1.0, high=99.0, typical=0.0)
        """
        every = -(-sum(array.size for array in values) // MOST_VALUES) or 1
        numbers = np.concatenate([np.zeros(0), *(array.reshape(-1)[::every].astype(np.float64) for array in values)])
        numbers = numbers[np.isfinite(numbers)]
        if not numbers.size:
            return cls(low=0.0, high=1.0)
        sizes = np.abs(numbers[numbers != 0])
        typical = float(np.median(sizes)) if sizes.size else 0.0
        if typical and sizes.max() > HUGE_RANGE * typical:
            percent = 99.8  # rare large values are what a logarithm is for
        else:
            typical = 0.0
        low, high = (float(value) for value in np.percentile(numbers, (50 - percent / 2, 50 + percent / 2)))
        if low == high:
            low, high = float(numbers.min()), float(numbers.max())
        return cls(low=low, high=high, typical=typical)

    def apply(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Values as numbers from 0 to 1; what is infinite or no number becomes NaN."""
        low, high = self.low, self.high
        numbers = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
        if self.typical:
            low, high = (float(np.arcsinh(end / self.typical)) for end in (low, high))
            numbers = np.arcsinh(numbers / self.typical)
        return np.clip((numbers - low) / (high - low or 1.0), 0.0, 1.0)


def choose_thumbnails(spec: SampleSpec) -> list[Thumbnail]:
    """What is shown of each sample, the first fields first."""
    found = [thumbnail for name, field in spec.fields.items() for thumbnail in _thumbnails(name, field)]
    large = [
        thumbnail
        for thumbnail in found
        if thumbnail.kind != "line" or max(spec.fields[thumbnail.field].shape) >= LEAST_LENGTH
    ]
    if not found:
        raise DataError(
            f"samples hold single numbers only ({', '.join(spec.fields)}): there is nothing to draw. Leave --sheet out."
        )
    return (large or found)[:MOST_THUMBNAILS]


def scale_thumbnail(thumbnail: Thumbnail, field: Field, samples: Sequence[Mapping[str, NDArray[Any]]]) -> Scale | None:
    """The scale of a thumbnail, for all samples; photographs need none."""
    if thumbnail.kind in ("colour", "grey"):
        return None
    if field.classes:
        return Scale(low=0.0, high=len(field.classes) - 1.0)
    percent = 100.0 if thumbnail.kind == "line" else 98.0  # a curve that is cut off shows another shape
    return Scale.of([thumbnail.take(sample[thumbnail.field]) for sample in samples], percent)


def draw_thumbnail(thumbnail: Thumbnail, scale: Scale | None, values: NDArray[Any], side: int) -> Image.Image:
    """A picture of a thumbnail of one sample, at most `side` wide and high."""
    shown = thumbnail.take(values)
    if thumbnail.kind == "line":
        assert scale is not None
        return _draw_lines(scale.apply(shown), side)
    if scale is None:
        pixels = np.moveaxis(shown, 0, -1) if thumbnail.kind == "colour" else shown
        return _fitted(Image.fromarray(np.ascontiguousarray(pixels)).convert("RGB"), side)
    return _fitted(shade(scale.apply(shown)), side)


def shade(levels: NDArray[np.float64]) -> Image.Image:
    """Numbers from 0 (light) to 1 (dark) as an image; what is no number stands out."""
    palette = np.linspace(LIGHT, DARK, 256).round().astype(np.uint8)
    pixels = palette[np.round(255 * np.nan_to_num(levels)).astype(np.uint8)]
    pixels[np.isnan(levels)] = WRONG
    return Image.fromarray(pixels)


def _thumbnails(name: str, field: Field) -> list[Thumbnail]:
    shape = field.shape
    if not shape or 0 in shape:
        return []
    counts_channels = bool(field.channels) or len(shape) > 3 or (len(shape) == 3 and shape[0] <= 4 < shape[1])
    dimensions = len(shape) - counts_channels
    if dimensions < 2:
        lines = tuple(range(min(shape[0], len(LINES)))) if dimensions == 1 and counts_channels else ()
        more = f", {_called(field, lines)}" if lines else ""
        return [Thumbnail(field=name, channels=lines, kind="line", title=name + more, unit=field.unit)]
    what = f", middle of {' × '.join(map(str, shape[-dimensions:]))}" if dimensions > 2 else ""
    if not counts_channels:
        return [Thumbnail(field=name, channels=(), kind="scale", title=name + what, unit=field.unit)]
    if dimensions == 2 and field.dtype == "uint8" and shape[0] in (3, 4):
        return [Thumbnail(field=name, channels=(0, 1, 2), kind="colour", title=f"{name}, in colour")]
    if dimensions == 2 and field.dtype == "uint8" and field.channels[:1] == ("grey",):
        return [Thumbnail(field=name, channels=(0,), kind="grey", title=f"{name}, grey")]
    return [
        Thumbnail(
            field=name,
            channels=(channel,),
            kind="scale",
            title=(f"{name}, {_called(field, (channel,))}" if shape[0] > 1 else name) + what,
            unit=field.unit,
        )
        for channel in range(min(shape[0], MOST_CHANNELS))
    ]


def _called(field: Field, channels: Sequence[int]) -> str:
    """Channels by name, or by number where names are none; out of how many."""
    names = [field.channels[channel] if field.channels else str(channel) for channel in channels]
    kind = "channel " if all(name.isdecimal() for name in names) else ""
    more = f" (of {field.shape[0]} channels)" if field.shape[0] > len(channels) else ""
    return f"{kind}{', '.join(names)}{more}"


def _fitted(image: Image.Image, side: int) -> Image.Image:
    """An image as large as fits: small ones by whole factors, so that each value stays a square."""
    factor = side / max(image.size)
    if factor >= 2:
        width, height = (length * int(factor) for length in image.size)
        return image.resize((width, height), Image.Resampling.NEAREST)
    width, height = (max(1, round(length * factor)) for length in image.size)
    return image.resize((width, height), Image.Resampling.BOX if factor < 1 else Image.Resampling.BILINEAR)


def _draw_lines(levels: NDArray[np.float64], side: int) -> Image.Image:
    """Curves from left to right, drawn twice as large and made smaller, so that they are smooth."""
    width, height = 2 * side, 2 * side * 5 // 8
    image = Image.new("RGB", (width, height), LIGHT)
    pen = ImageDraw.Draw(image)
    for line, colour in zip(levels, LINES, strict=False):
        places = np.linspace(4, width - 5, len(line))
        heights = height - 7 - line * (height - 14)
        right = ~np.isnan(line)
        points = [(float(x), float(y)) for x, y in zip(places[right], heights[right], strict=True)]
        if len(points) > 1:
            pen.line(points, fill=colour, width=3)
        for x in places[~right]:
            pen.line([(float(x), 0.0), (float(x), float(height))], fill=WRONG, width=2)
    return image.resize((side, height // 2), Image.Resampling.BOX)
