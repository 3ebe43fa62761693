import numpy as np
import pytest
import torch

from deepex.data import ArraySource, Preparation, Preparer
from deepex.data.feeding.augment import Augmentation, Crop, CubeSymmetry, Flip, Rotate, Shift
from deepex.data.feeding.convert import Convert
from deepex.data.source import allocate
from deepex.data.statistics import Moments
from deepex.errors import ConfigError

VALUES = np.random.default_rng(0).integers(0, 200, (50, 3, 7, 5), dtype=np.uint8)


def converted(convert: Convert) -> np.ndarray:
    preparer = Preparer(ArraySource({"x": VALUES}), Preparation(convert={"x": convert}))
    out = allocate(preparer.spec, 50)
    preparer.read(range(50), out)
    return out["x"].numpy()


def test_z_scores_have_mean_0_and_deviation_1_in_each_channel() -> None:
    out = converted(Convert.z_score(Moments.of(VALUES.reshape(50, 3, -1))))
    assert out.dtype == np.float32
    assert out.mean(axis=(0, 2, 3)) == pytest.approx([0] * 3, abs=1e-5)
    assert out.std(axis=(0, 2, 3)) == pytest.approx([1] * 3, abs=1e-5)


def test_min_max_goes_from_0_to_1() -> None:
    out = converted(Convert.min_max(Moments.of(VALUES.reshape(50, 3, -1))))
    assert (out.min(), out.max()) == (0, 1)


def test_logarithms_and_their_order() -> None:
    out = converted(Convert(log1p=True, shift=(1.0,), scale=(2.0,)))
    assert np.allclose(out, (np.log1p(VALUES.astype(np.float64)) - 1) / 2, atol=1e-6)
    large = Preparer(
        ArraySource({"x": np.ones((1, 70_000), dtype=np.int16)}), Preparation(convert={"x": Convert(log1p=True)})
    )
    buffer = allocate(large.spec, 1)
    large.read([0], buffer)
    assert torch.allclose(buffer["x"], torch.full((1, 70_000), 2.0).log())


@pytest.mark.parametrize("log1p", [False, True])
def test_a_conversion_is_undone_channel_by_channel(log1p: bool) -> None:
    convert = Convert(log1p=log1p, shift=(1.0, 1.2, 0.9), scale=(0.5, 0.6, 0.7))
    assert np.allclose(convert.undo(converted(convert)), VALUES, atol=1e-3)


def test_a_constant_channel_becomes_0() -> None:
    constant = np.full((4, 1, 3), 5.0, dtype=np.float32)
    convert = Convert.z_score(Moments.of(constant))
    out = np.empty_like(constant)
    convert.apply(constant, out)
    assert not out.any()


def test_conversions_that_do_not_fit_are_refused() -> None:
    source = ArraySource({"x": VALUES})
    with pytest.raises(ConfigError, match="2 numbers convert a field of shape"):
        Preparer(source, Preparation(convert={"x": Convert(scale=(1.0, 2.0))}))
    with pytest.raises(ConfigError, match="unknown field 'y'"):
        Preparer(source, Preparation(convert={"y": Convert()}))
    with pytest.raises(ConfigError, match="scale not 0"):
        Convert(scale=(0.0,))


def augmented(
    preparation: Preparation, indices: list[int], draw_for: tuple[int, int] | None
) -> dict[str, torch.Tensor]:
    arrays = {"x": np.arange(40 * 6 * 6).reshape(40, 1, 6, 6), "mask": np.arange(40 * 6 * 6).reshape(40, 1, 6, 6)}
    preparer = Preparer(ArraySource(arrays), preparation)
    out = allocate(preparer.spec, len(indices))
    preparer.read(indices, out, draw_for)
    return out


BOTH = ("x", "mask")
EACH = [Flip(fields=BOTH), Rotate(fields=BOTH), Shift(fields=BOTH), Crop(fields=BOTH, size=(4, 3))]


@pytest.mark.parametrize("augmentation", EACH)
def test_what_is_drawn_follows_from_seed_epoch_and_sample_alone(augmentation: Flip) -> None:
    preparation = Preparation(augment=[augmentation])
    whole = augmented(preparation, list(range(40)), (1, 2))
    some = augmented(preparation, [7, 30, 7], (1, 2))
    assert torch.equal(some["x"], whole["x"][[7, 30, 7]])
    assert torch.equal(whole["x"], whole["mask"])  # fields are changed alike
    assert not torch.equal(whole["x"], augmented(preparation, list(range(40)), (1, 3))["x"])
    assert not torch.equal(whole["x"], augmented(preparation, list(range(40)), (2, 2))["x"])
    plain = augmented(preparation, list(range(40)), None)["x"]
    assert torch.equal(plain, augmented(preparation, list(range(40)), None)["x"])


def test_augmentations_move_values_and_conversion_comes_after() -> None:
    preparation = Preparation(
        augment=[Flip(fields=("x",)), Rotate(fields=("x",)), Shift(fields=("x",), axes=(-2, -1))],
        convert={"x": Convert(shift=(1.0,))},
    )
    out = augmented(preparation, list(range(40)), (0, 0))
    values, mask = out["x"].numpy(), out["mask"].numpy()
    assert values.dtype == np.float32
    for sample, original in zip(values, mask, strict=True):
        assert sorted(sample.ravel() + 1) == sorted(original.ravel())
    assert len({sample.tobytes() for sample in values - mask}) > 20


def test_all_48_symmetries_of_the_cube_are_drawn() -> None:
    cube = np.random.default_rng(0).random((1, 2, 2, 2))
    source = ArraySource({"x": np.repeat(cube[None], 2000, axis=0)})
    preparer = Preparer(source, Preparation(augment=[CubeSymmetry(fields=("x",))]))
    out = allocate(preparer.spec, 2000)
    preparer.read(range(2000), out, (0, 0))
    assert len({sample.numpy().tobytes() for sample in out["x"]}) == 48


def test_a_window_is_cut_from_the_middle_in_evaluation() -> None:
    out = augmented(Preparation(augment=[Crop(fields=BOTH, size=(2, 2))]), [0], None)
    assert out["x"].tolist() == [[[[14, 15], [20, 21]]]]


MISFITS: list[tuple[Augmentation, str]] = [
    (Rotate(fields=("x",)), "same length"),
    (Crop(fields=("x",), size=(5, 5)), "windows that fit"),
    (CubeSymmetry(fields=("x",)), "last three axes"),
    (Flip(fields=("x",), axes=(-3,)), "-1 for the last"),
]


@pytest.mark.parametrize(("augmentation", "text"), MISFITS)
def test_augmentations_that_do_not_fit_are_refused(augmentation: Augmentation, text: str) -> None:
    source = ArraySource({"x": np.zeros((2, 4, 6))})
    with pytest.raises(ConfigError, match=text):
        Preparer(source, Preparation(augment=[augmentation]))


def test_a_window_may_be_the_whole_field() -> None:
    whole = Crop(fields=("x",), size=(4, 3))
    assert whole.shape((2, 4, 3)) == (2, 4, 3)
    assert whole.draw(lambda choices: choices - 1, (2, 4, 3)) == (0, 0)
