"""IDX files: read plain and gzipped; each way in which one can be wrong is one line that names the file."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from labs.idx_data import read_images
from labs.image_data import ImageDataset
from labs.text_files import DataError
from tests.labs_data.idx import idx, write_set

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize("packed", [False, True])
def test_the_first_images_and_their_labels(tmp_path: Path, packed: bool) -> None:
    """Bytes as they lie in the file, and as examples of a dataset."""
    images = read_images(str(write_set(tmp_path, 10, packed=packed)), 6)
    assert (images.rows, images.columns, len(images), len(images.pixels)) == (4, 4, 6, 6 * 16)
    dataset = ImageDataset(images, 5)
    assert (len(dataset), dataset.num_pixels, dataset.num_classes) == (5, 16, 3)
    pixels, label = dataset[4]
    assert (pixels.dtype, pixels.shape, label.dtype) == (torch.float32, (16,), torch.int64)
    assert (pixels * 255).round().tolist() == list(images.pixels[64:80])
    assert int(label) == images.labels[4]
    assert pixels.view(4, 4).mean(1).argmax() == label
    with pytest.raises(ValueError, match="6 images were read, 7 are asked for"):
        ImageDataset(images, 7)


def test_the_names_with_dots_are_found(tmp_path: Path) -> None:
    """As some mirrors spell them."""
    write_set(tmp_path, 3)
    (tmp_path / IMAGES).rename(tmp_path / "train-images.idx3-ubyte")
    (tmp_path / LABELS).rename(tmp_path / "train-labels.idx1-ubyte")
    assert len(read_images(str(tmp_path), 9)) == 3


def cut(folder: Path) -> None:
    """The last image is not there."""
    path = folder / IMAGES
    path.write_bytes(path.read_bytes()[:-16])


def cut_header(folder: Path) -> None:
    """Half a header."""
    path = folder / IMAGES
    path.write_bytes(path.read_bytes()[:9])


def cut_packed(folder: Path) -> None:
    """A download that broke off."""
    path = folder / IMAGES
    (folder / f"{IMAGES}.gz").write_bytes(gzip.compress(path.read_bytes())[:-20])
    path.unlink()


def cut_before_packing(folder: Path) -> None:
    """A whole gzip file of half a set, of which the first images are there."""
    path = folder / IMAGES
    (folder / f"{IMAGES}.gz").write_bytes(gzip.compress(path.read_bytes()[:-16]))
    path.unlink()


def not_packed(folder: Path) -> None:
    """Named .gz, and not packed."""
    (folder / IMAGES).rename(folder / f"{IMAGES}.gz")


def swapped(folder: Path) -> None:
    """Labels under the images' name."""
    (folder / IMAGES).write_bytes((folder / LABELS).read_bytes())


def of_floats(folder: Path) -> None:
    """Elements of another type."""
    (folder / LABELS).write_bytes(idx((10,), bytes(40), magic=b"\0\0\x0d"))


def nothing_in_it(folder: Path) -> None:
    """Zero bytes."""
    (folder / LABELS).write_bytes(b"")


def no_images(folder: Path) -> None:
    """A header that promises none."""
    (folder / IMAGES).write_bytes(idx((0, 4, 4), b""))


def fewer_labels(folder: Path) -> None:
    """Of another set."""
    (folder / LABELS).write_bytes(idx((7,), bytes(7)))


def huge(folder: Path) -> None:
    """A header that promises images larger than memory."""
    (folder / IMAGES).write_bytes(idx((10, 1 << 31, 1 << 31), b""))


def no_labels(folder: Path) -> None:
    """One of the two is missing."""
    (folder / LABELS).unlink()


def a_folder(folder: Path) -> None:
    """A folder under the file's name."""
    (folder / IMAGES).unlink()
    (folder / IMAGES).mkdir()


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (cut, rf"{IMAGES}' is cut short: its header promises 176 bytes, 160 are there"),
        (cut_header, rf"{IMAGES}' is cut short: it ends within its header"),
        (cut_packed, rf"{IMAGES}\.gz' is no whole gzip file"),
        (cut_before_packing, rf"{IMAGES}\.gz' is cut short: its header promises 176 bytes, 160 are there"),
        (not_packed, rf"{IMAGES}\.gz' is no whole gzip file"),
        (swapped, rf"{IMAGES}' begins with 00 00 08 01, an IDX file of 3 dimensions with 00 00 08 03"),
        (of_floats, rf"{LABELS}' begins with 00 00 0d 01, an IDX file of 1 dimension with 00 00 08 01"),
        (nothing_in_it, rf"{LABELS}' begins with nothing"),
        (no_images, rf"{IMAGES}' is empty: its sizes are 0 x 4 x 4"),
        (fewer_labels, "10 images and .* 7 labels; they do not belong together"),
        (huge, "at most 65536 are allowed"),
        (no_labels, rf"has no {LABELS}; place {IMAGES} and {LABELS} \(or the same with \.gz\) there"),
        (a_folder, rf"has no {IMAGES}; place"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, harm: Callable[[Path], None], words: str) -> None:
    """With the file's name."""
    harm(write_set(tmp_path, 10))
    with pytest.raises(DataError, match=words) as caught:
        read_images(str(tmp_path), 4)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_not_there() -> None:
    """Said before any file is looked for."""
    with pytest.raises(DataError, match="does not exist"):
        read_images("/nowhere/at/all", 1)
