"""Train the language model, write weights.npz: `python examples/language/train.py` (12 minutes on 2 cores).

Training runs a padded batch, which model.py knows nothing of; at the end the served per-example
function must give the same probabilities.
"""

import argparse
import importlib
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
from phrases import LANGUAGES, MAX_CHARACTERS, PhraseSource

WEIGHTS_FILE = Path(__file__).with_name("weights.npz")
# A prime: alphabets of neighbouring Unicode blocks hardly collide.
CHARACTER_IDS = 1021
EMBEDDING = 32
HIDDEN = 128
BATCH = 256
LENGTH_STEP = 20  # padded lengths are multiples of it: three compiled training steps


def initial_weights(seed: int) -> dict[str, tf.Variable]:
    """Trainable arrays by the name under which they are stored."""
    glorot = tf.keras.initializers.GlorotUniform(seed=seed)
    orthogonal = tf.keras.initializers.Orthogonal(seed=seed)
    recurrent = tf.concat([orthogonal([HIDDEN, HIDDEN]) for _ in range(3)], axis=1)
    return {
        "embedding": tf.Variable(tf.random.stateless_normal([CHARACTER_IDS, EMBEDDING], [seed, 0]) * 0.3),
        "input_kernel": tf.Variable(glorot([EMBEDDING, 3 * HIDDEN])),
        "input_bias": tf.Variable(tf.zeros([3 * HIDDEN])),
        "recurrent_kernel": tf.Variable(recurrent),
        "recurrent_bias": tf.Variable(tf.zeros([3 * HIDDEN])),
        "output_kernel": tf.Variable(glorot([HIDDEN, len(LANGUAGES)])),
        "output_bias": tf.Variable(tf.zeros([len(LANGUAGES)])),
    }


def pad(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Character ids [B, T] int32, padded with 0, and lengths [B] int32."""
    lengths = np.array([len(text) for text in texts], np.int32)
    padded_length = -(-int(lengths.max()) // LENGTH_STEP) * LENGTH_STEP
    ids = np.zeros([len(texts), padded_length], np.int32)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = [ord(character) % CHARACTER_IDS for character in text]
    return ids, lengths


def batched_logits(weights: dict[str, tf.Tensor], ids: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Logits [B, languages] of padded texts; rows that have finished keep their state."""
    embedded = tf.transpose(tf.gather(weights["embedding"], ids), [1, 0, 2])
    steps = ids.shape[1]
    size = ids.shape[0]

    def step(t: tf.Tensor, h: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        from_input = embedded[t] @ weights["input_kernel"] + weights["input_bias"]
        from_state = h @ weights["recurrent_kernel"] + weights["recurrent_bias"]
        update_x, reset_x, candidate_x = tf.split(from_input, 3, axis=1)
        update_h, reset_h, candidate_h = tf.split(from_state, 3, axis=1)
        update = tf.sigmoid(update_x + update_h)
        candidate = tf.tanh(candidate_x + tf.sigmoid(reset_x + reset_h) * candidate_h)
        new = update * h + (1.0 - update) * candidate
        return t + 1, tf.where((t < lengths)[:, None], new, h)

    _, state = tf.while_loop(
        lambda t, h: t < steps, step, (tf.constant(0), tf.zeros([size, HIDDEN])), maximum_iterations=steps
    )
    return state @ weights["output_kernel"] + weights["output_bias"]


def make_train_step(
    weights: dict[str, tf.Variable], optimizer: tf.keras.optimizers.Optimizer
) -> Callable[..., tf.Tensor]:
    """A function (ids, lengths, labels) -> mean loss that also takes one optimizer step."""
    variables = list(weights.values())
    optimizer.build(variables)

    @tf.function(jit_compile=True)
    def loss_and_gradients(ids: tf.Tensor, lengths: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, list]:
        with tf.GradientTape() as tape:
            logits = batched_logits({name: tf.identity(w) for name, w in weights.items()}, ids, lengths)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        return loss, tape.gradient(loss, variables)

    def train_step(ids: np.ndarray, lengths: np.ndarray, labels: np.ndarray) -> tf.Tensor:
        loss, gradients = loss_and_gradients(*map(tf.constant, (ids, lengths, labels)))
        gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    return train_step


def held_out_phrases(count_per_length: int, seed: int = 1) -> tuple[list[str], np.ndarray]:
    """Phrases of 1 to 8 words never trained on, ``count_per_length`` of each word count, and their labels."""
    source = PhraseSource(held_out=True, seed=seed)
    batches = [source.batch(count_per_length, word_count) for word_count in range(1, 9)]
    texts = [text for phrases, _ in batches for text in phrases]
    return texts, np.concatenate([labels for _, labels in batches])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    weights = initial_weights(options.seed)
    schedule = tf.keras.optimizers.schedules.CosineDecay(3e-3, options.steps, alpha=0.01)
    train_step = make_train_step(weights, tf.keras.optimizers.Adam(schedule))
    source = PhraseSource(held_out=False, seed=options.seed)
    word_counts = np.random.default_rng(options.seed).choice(
        np.arange(1, 9), options.steps, p=[0.26, 0.2, 0.14, 0.1, 0.09, 0.08, 0.07, 0.06]
    )
    started_at = time.perf_counter()
    losses = []
    for step, word_count in enumerate(word_counts, start=1):
        texts, labels = source.batch(BATCH, word_count)
        losses.append(train_step(*pad(texts), labels))
        if step % 250 == 0:
            elapsed_s = time.perf_counter() - started_at
            print(f"step {step}: loss {np.mean(losses[-250:]):.3f}, {elapsed_s:.0f} s", flush=True)

    stored = {name: w.numpy().astype(np.float16) for name, w in weights.items()}
    np.savez_compressed(WEIGHTS_FILE, languages=np.array(LANGUAGES), **stored)

    rounded = {name: tf.constant(array.astype(np.float32)) for name, array in stored.items()}
    texts, labels = held_out_phrases(count_per_length=500)
    predicted = np.argmax(batched_logits(rounded, *map(tf.constant, pad(texts))), axis=1)
    lengths = np.array([len(text) for text in texts])
    print(f"held-out accuracy, {len(texts)} phrases of unseen words: {np.mean(predicted == labels):.1%}")
    for low, high in ((1, 4), (5, 9), (10, 19), (20, 39), (40, MAX_CHARACTERS)):
        chosen = (low <= lengths) & (lengths <= high)
        accuracy = np.mean(predicted[chosen] == labels[chosen])
        print(f"  {low:2} to {high:2} characters: {accuracy:.1%} of {chosen.sum()}")
    check_served(rounded, texts[:: len(texts) // 64])


def check_served(weights: dict[str, tf.Tensor], texts: list[str]) -> None:
    """Raise unless the served function gives each text the probabilities that training computes."""
    served = tf.function(importlib.import_module("model").language)
    expected = tf.nn.softmax(batched_logits(weights, *map(tf.constant, pad(texts))))
    for text, probabilities in zip(texts, expected, strict=True):
        np.testing.assert_allclose(served(tf.constant(text))["probabilities"], probabilities, atol=1e-5)
    print(f"served function agrees with training on {len(texts)} phrases")


if __name__ == "__main__":
    main()
