"""scikit-learn's 1,797 handwritten digits, split the same way for training, test and client."""

from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


class Split(NamedTuple):
    """Images [n, 8, 8] float32 with ink from 0 to 16, and their digits [n] int32."""

    images: np.ndarray
    digits: np.ndarray


def train_and_held_out() -> tuple[Split, Split]:
    """Four in five images to train on and one in five to test with, every digit in proportion."""
    data = load_digits()
    train_images, test_images, train_digits, test_digits = train_test_split(
        data.images.astype(np.float32),
        data.target.astype(np.int32),
        test_size=0.2,
        stratify=data.target,
        random_state=0,
    )
    return Split(train_images, train_digits), Split(test_images, test_digits)
