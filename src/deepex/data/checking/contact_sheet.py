"""A contact sheet: samples of a data set beside each other as one image, each with its name and class.

It takes them evenly spaced, or a few of each class. It knows sources, and not what they show.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from deepex.data.checking.check import as_numbers
from deepex.data.checking.thumbnails import (
    DARK,
    LIGHT,
    WRONG,
    Scale,
    Thumbnail,
    choose_thumbnails,
    draw_thumbnail,
    scale_thumbnail,
    shade,
)
from deepex.data.source import Source, allocate, as_array, read_good
from deepex.sample import SampleSpec

MOST_SAMPLES, MOST_ROWS = 48, 10
MOST_LABELS = 4096  # so many samples are asked for their class
WIDTH, MARGIN, GAP, NEAR = 1280, 24, 14, 4  # pixels; pictures of one sample are nearer than samples
COLUMNS = {1: 8, 2: 5, 3: 4, 4: 3}  # of samples, by how many pictures each has
TEXT, LINE = 11, 16  # height of letters and of a line of them
GREY, FRAME = (96, 106, 126), (214, 220, 230)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sample of a sheet: its name, what stands below it, its values, and whether it could be read."""

    name: str
    label: str
    values: dict[str, NDArray[Any]]
    is_good: bool = True


def draw_sheet(source: Source, title: str, most: int = MOST_SAMPLES) -> bytes:
    """A PNG with at most so many samples of a source.

    Example: `Path("sheet.png").write_bytes(draw_sheet(PackedSource(Path("bba.h5")), "bba.h5"))`
    """
    thumbnails = choose_thumbnails(source.spec)
    columns = COLUMNS[len(thumbnails)]
    side = ((WIDTH - 2 * MARGIN + GAP) // columns - GAP + NEAR) // len(thumbnails) - NEAR
    samples = read_samples(source, thumbnails, min(most, columns * MOST_ROWS))
    readable = [sample.values for sample in samples if sample.is_good]
    scales = [scale_thumbnail(thumbnail, source.spec.fields[thumbnail.field], readable) for thumbnail in thumbnails]
    tiles = [_draw_tile(sample, thumbnails, scales, side) for sample in samples]
    heading = _draw_heading(title, len(source), len(samples), thumbnails, scales)
    image = _arrange(heading, tiles, columns)
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def read_samples(source: Source, thumbnails: Sequence[Thumbnail], most: int) -> list[Sample]:
    """The samples of a sheet: a few of each class where there are classes, else evenly spaced."""
    fields = source.spec.fields
    label = next((name for name, field in fields.items() if field.classes and not field.shape), None)
    indices = _spaced(len(source), most) if label is None else _of_each_class(source, label, most)
    names = {thumbnail.field for thumbnail in thumbnails} | ({label} if label else set())
    spec = SampleSpec(fields={name: fields[name] for name in names})
    samples = []
    for index in indices.tolist():
        batch = allocate(spec, 1)
        bad = read_good(source, [index], batch)
        values = {name: as_numbers(tensor)[0] for name, tensor in batch.items()}
        number = int(values[label]) if label and not bad else -1
        known = label is not None and 0 <= number < len(fields[label].classes)
        told = "can't be read" if bad else fields[label].classes[number] if label and known else ""
        samples.append(Sample(name=source.name(index), label=told, values=values, is_good=not bad))
    return samples


def _spaced(total: int, most: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, total - 1, min(most, total)).round().astype(np.int64))


def _of_each_class(source: Source, label: str, most: int) -> NDArray[np.int64]:
    """Samples class by class, as many of each; classes are looked for among a bounded number of samples."""
    asked = _spaced(len(source), MOST_LABELS)
    batch = allocate(SampleSpec(fields={label: source.spec.fields[label]}), len(asked))
    bad = read_good(source, asked, batch)
    good = np.delete(np.arange(len(asked)), list(bad))
    classes = as_array(batch[label])[good]
    present = np.unique(classes)
    shown = present[_spaced(len(present), most)]
    groups = [asked[good][classes == number] for number in shown]
    of_each = [group[_spaced(len(group), max(1, most // len(shown)))] for group in groups]
    return np.concatenate([*of_each, asked[list(bad)][: most - sum(map(len, of_each))]])


def _draw_tile(
    sample: Sample, thumbnails: Sequence[Thumbnail], scales: Sequence[Scale | None], side: int
) -> Image.Image:
    """The pictures of a sample beside each other, its name and class below."""
    pictures = [
        draw_thumbnail(thumbnail, scale, sample.values[thumbnail.field], side)
        for thumbnail, scale in zip(thumbnails, scales, strict=True)
    ]
    height = max(picture.height for picture in pictures)
    tile = Image.new(
        "RGB", (len(thumbnails) * (side + NEAR) - NEAR, height + (2 if sample.label else 1) * LINE + 8), LIGHT
    )
    pen = ImageDraw.Draw(tile)
    for place, picture in enumerate(pictures):
        left, top = place * (side + NEAR), (height - picture.height) // 2
        if sample.is_good:
            tile.paste(picture, (left, top))
        pen.rectangle((left, top, left + picture.width - 1, top + picture.height - 1), outline=FRAME)
    colour = DARK if sample.is_good else WRONG
    pen.text((0, height + 4), _shortened(sample.name, tile.width), fill=GREY, font=_font())
    pen.text((0, height + 4 + LINE), _shortened(sample.label, tile.width), fill=colour, font=_font())
    return tile


def _draw_heading(
    title: str, total: int, shown: int, thumbnails: Sequence[Thumbnail], scales: Sequence[Scale | None]
) -> Image.Image:
    """The title, how many samples there are, and what each picture shows on which scale."""
    heading = Image.new("RGB", (WIDTH - 2 * MARGIN, 62 + (LINE + 4) * len(thumbnails)), LIGHT)
    pen = ImageDraw.Draw(heading)
    pen.text((0, 0), _shortened(title, heading.width, 20), fill=DARK, font=_font(20))
    of_all = "all shown" if shown == total else f"{shown:,} of them shown"
    pen.text((0, 32), f"{total:,} samples, {of_all}", fill=GREY, font=_font(13))
    for place, (thumbnail, scale) in enumerate(zip(thumbnails, scales, strict=True)):
        top = 58 + (LINE + 4) * place
        left = 0
        if thumbnail.kind == "scale":
            ramp = shade(np.tile(np.linspace(0, 1, 72), (LINE - 4, 1)))
            heading.paste(ramp, (0, top + 1))
            pen.rectangle((0, top + 1, ramp.width - 1, top + ramp.height), outline=FRAME)
            left = ramp.width + 10
        where = f"{('1st', '2nd', '3rd', '4th')[place]} picture: " if len(thumbnails) > 1 else ""
        pen.text((left, top), f"{where}{thumbnail.title}{_tell_scale(thumbnail, scale)}", fill=GREY, font=_font())
    return heading


def _tell_scale(thumbnail: Thumbnail, scale: Scale | None) -> str:
    if scale is None:
        return ""
    unit = f" {thumbnail.unit}" if thumbnail.unit else ""
    return f", {scale.low:.4g} to {scale.high:.4g}{unit}{', logarithmic' if scale.typical else ''}"


def _arrange(heading: Image.Image, tiles: Sequence[Image.Image], columns: int) -> Image.Image:
    """All of a sheet on one page."""
    rows = [tiles[first : first + columns] for first in range(0, len(tiles), columns)]
    heights = [max(tile.height for tile in row) + GAP for row in rows]
    sheet = Image.new("RGB", (WIDTH, 2 * MARGIN + heading.height + sum(heights)), LIGHT)
    sheet.paste(heading, (MARGIN, MARGIN))
    top = MARGIN + heading.height + GAP // 2
    for row, height in zip(rows, heights, strict=True):
        for place, tile in enumerate(row):
            sheet.paste(tile, (MARGIN + place * (tile.width + GAP), top))
        top += height
    return sheet


@cache
def _font(size: int = TEXT) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """A font with the signs of units, where the system has it; else Pillow's own."""
    try:
        return ImageFont.truetype("DejaVuSans.ttf", size)
    except OSError:
        return ImageFont.load_default(size + 1)


def _shortened(text: str, width: int, size: int = TEXT) -> str:
    """A text that fits; of a long one the end stays, where file names differ."""
    font = _font(size)
    if font.getlength(text) <= width:
        return text
    while text and font.getlength("…" + text) > width:
        text = text[1:]
    return "…" + text
