"""Random changes of images: one for each image, nothing invented, nothing in evaluation mode."""

import pytest
import torch

from bayesdiv.training.augmentation import Crop, Cutout, Flip, Prepare


@pytest.fixture
def images() -> torch.Tensor:
    torch.manual_seed(0)
    return 1 + torch.rand(400, 3, 8, 10)


def shifted(image: torch.Tensor, down: int, right: int) -> torch.Tensor:
    """By a loop over pixels."""
    out = torch.zeros_like(image)
    for row in range(image.shape[1]):
        for column in range(image.shape[2]):
            if 0 <= row + down < image.shape[1] and 0 <= column + right < image.shape[2]:
                out[:, row, column] = image[:, row + down, column + right]
    return out


def test_a_crop_is_a_shift_and_every_shift_occurs(images):
    cropped = Crop(1)(images)
    shifts = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    seen = []
    for image, result in zip(images[:100], cropped[:100], strict=True):
        equal = [shift for shift in shifts if torch.equal(shifted(image, *shift), result)]
        assert len(equal) == 1
        seen += equal
    assert set(seen) == set(shifts)


def test_a_flip_mirrors_about_half_of_the_images(images):
    flipped = Flip()(images)
    same = (flipped == images).flatten(1).all(1)
    mirrored = (flipped == images.flip(-1)).flatten(1).all(1)
    assert bool((same ^ mirrored).all())
    assert 150 < int(mirrored.sum()) < 250


def test_a_cutout_clears_one_rectangle_of_at_most_its_side_in_all_channels(images):
    cleared = Cutout(4)(images) == 0
    assert bool((cleared == cleared[:, :1]).all())
    for mask in cleared[:, 0]:
        rows, columns = mask.any(1).nonzero(), mask.any(0).nonzero()
        height = int(rows.max() - rows.min()) + 1
        width = int(columns.max() - columns.min()) + 1
        assert int(mask.sum()) == height * width
        assert max(height, width) <= 4
    assert int((cleared[:, 0].flatten(1).sum(1) == 16).sum()) > 100


def test_prepare_changes_images_in_training_only(images):
    prepare = Prepare([1.0, 1.5, 2.0], [0.5, 0.5, 2.0], changes=[Crop(2), Flip()])
    assert not torch.equal(prepare(images), prepare(images))
    prepare.eval()
    wanted = torch.stack(
        [(images[:, 0] - 1) / 0.5, (images[:, 1] - 1.5) / 0.5, (images[:, 2] - 2) / 2], 1
    )
    assert torch.allclose(prepare(images), wanted, atol=1e-6)


def test_the_same_seed_makes_the_same_changes(images):
    changes = Crop(2), Flip(), Cutout(3)
    for change in changes:
        torch.manual_seed(3)
        first = change(images)
        torch.manual_seed(3)
        assert torch.equal(first, change(images))


@pytest.mark.parametrize("bad", [lambda: Crop(-1), lambda: Cutout(0), lambda: Prepare([0.0], [0])])
def test_impossible_sizes_are_refused(bad):
    with pytest.raises(ValueError, match="must"):
        bad()
