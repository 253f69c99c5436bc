"""Train the digits model and write weights.npz: `python examples/digits/train.py` (a minute on 2 cores).

Keras trains a network of the same layers on whole batches; at the end the served per-example function
must give the same probabilities.
"""

import argparse
import importlib
from pathlib import Path

import numpy as np
import tensorflow as tf
from dataset import train_and_held_out

WEIGHTS_FILE = Path(__file__).with_name("weights.npz")
PARAMETERS = (
    "filters_1",
    "bias_1",
    "filters_2",
    "bias_2",
    "hidden_kernel",
    "hidden_bias",
    "output_kernel",
    "output_bias",
)


def build_network() -> tf.keras.Sequential:
    """The layers of model.py, with dropout while training; ten probabilities come out."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input([8, 8]),
            layers.Reshape([8, 8, 1]),
            layers.Rescaling(1 / 16),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(64, activation="relu"),
            layers.Dropout(0.3),
            layers.Dense(10, activation="softmax"),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    tf.keras.utils.set_random_seed(options.seed)
    train, held_out = train_and_held_out()
    network = build_network()
    steps = options.epochs * -(-len(train.digits) // 64)
    schedule = tf.keras.optimizers.schedules.CosineDecay(2e-3, steps)
    network.compile(
        optimizer=tf.keras.optimizers.Adam(schedule),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    network.fit(train.images, train.digits, batch_size=64, epochs=options.epochs, verbose=2)

    stored = [array.astype(np.float16) for array in network.get_weights()]
    np.savez_compressed(WEIGHTS_FILE, **dict(zip(PARAMETERS, stored, strict=True)))
    network.set_weights([array.astype(np.float32) for array in stored])

    served = tf.function(importlib.import_module("model").digits)
    outputs = [served(tf.constant(image)) for image in held_out.images]
    np.testing.assert_allclose(
        [output["probabilities"] for output in outputs],
        network.predict(held_out.images, verbose=0),
        atol=1e-5,
    )
    accuracy = np.mean([int(output["digit"]) for output in outputs] == held_out.digits)
    print(f"served function agrees with training on {len(outputs)} images")
    print(f"held-out accuracy: {accuracy:.2%}")


if __name__ == "__main__":
    main()
