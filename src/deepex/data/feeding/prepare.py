"""From stored samples to those that a network takes: read, augment and convert, straight into a batch's buffer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from deepex.data.feeding.augment import Augmentation, drawing
from deepex.data.feeding.convert import Convert
from deepex.data.source import Indices, RandomSource, Source, allocate, as_array
from deepex.errors import ConfigError, unknown
from deepex.sample import Batch, SampleSpec


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What happens to samples between storage and network: conversions by field, and augmentations in order."""

    convert: Mapping[str, Convert] = field(default_factory=dict)
    augment: Sequence[Augmentation] = ()

    def spec(self, stored: SampleSpec) -> SampleSpec:
        """What samples are afterwards; a preparation that does not fit them is refused."""
        named = {*self.convert, *(name for augmentation in self.augment for name in augmentation.fields)}
        for name in sorted(named - set(stored.fields)):
            raise ConfigError(unknown("field", name, stored.fields))
        fields = {}
        for name, each in stored.fields.items():
            shape = each.shape
            for augmentation in self.augment:
                if name in augmentation.fields:
                    shape = augmentation.shape(shape)
            same = shape[:1] == each.shape[:1]
            fields[name] = replace(each, shape=shape, channels=each.channels if same else ())
            if name in self.convert:
                fields[name] = self.convert[name].field(fields[name])
        return SampleSpec(fields=fields)


@dataclass(frozen=True, kw_only=True)
class Splits:
    """What a task trains on, what it is judged on, and how samples are prepared.

    For the record: a hash of the content, and samples that were left out when it was packed, with the reason.
    """

    train: Source
    validation: Source
    content_sha256: str
    preparation: Preparation = field(default_factory=Preparation)
    left_out: Mapping[str, str] = field(default_factory=dict)


class Preparer:
    """The prepared samples of a source. Fields that are left as they are go straight into the buffer."""

    def __init__(self, source: Source, preparation: Preparation) -> None:
        self.source, self.preparation = source, preparation
        self.spec = preparation.spec(source.spec)
        augmented = {name for augmentation in preparation.augment for name in augmentation.fields}
        self._changed = {name: source.spec.fields[name] for name in {*preparation.convert, *augmented}}
        self._augmented = augmented
        self._drawn = source if isinstance(source, RandomSource) and source.draws else None
        self._stored: Batch = {}

    def __len__(self) -> int:
        return len(self.source)

    def name(self, index: int) -> str:
        return self.source.name(index)

    def read(self, indices: Indices, out: Batch, draw_for: tuple[int, int] | None = None) -> None:
        """Fill the first places of `out`; augmentations are drawn for (seed, epoch) if these are given."""
        size = len(indices)
        stored = self._scratch(size)
        straight = {name: tensor for name, tensor in out.items() if name not in stored}
        wanted = {**straight, **{name: tensor[:size] for name, tensor in stored.items()}}
        if self._drawn is None:
            self.source.read(indices, wanted)
        else:
            self._drawn.read_drawn(indices, wanted, draw_for)
        if self._augmented:
            self._augment(np.asarray(indices), out, draw_for)
        for name, conversion in self.preparation.convert.items():
            target = as_array(out[name])[:size]
            if name in self._augmented:
                conversion.finish(target)
            else:
                conversion.apply(as_array(stored[name])[:size], target)

    def _scratch(self, size: int) -> Batch:
        """Buffers for stored values, used again batch after batch."""
        if not self._stored or len(next(iter(self._stored.values()))) < size:
            self._stored = allocate(SampleSpec(fields=self._changed), size)
        return self._stored

    def _augment(self, indices: NDArray[np.int64], out: Batch, draw_for: tuple[int, int] | None) -> None:
        """Copy stored values into the batch, changed and cast, sample by sample."""
        sources = {name: as_array(self._stored[name]) for name in self._augmented}
        targets = {name: as_array(out[name]) for name in self._augmented}
        for row, index in enumerate(indices.tolist()):
            values = {name: array[row] for name, array in sources.items()}
            draw = drawing(*draw_for, index) if draw_for else None
            for augmentation in self.preparation.augment:
                drawn = augmentation.draw(draw, values[augmentation.fields[0]].shape) if draw else None
                for name in augmentation.fields:
                    values[name] = (
                        augmentation.plain(values[name]) if drawn is None else augmentation.apply(values[name], drawn)
                    )
            for name, array in values.items():
                np.copyto(targets[name][row], array, casting="unsafe")
