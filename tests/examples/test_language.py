"""The language example: what its per-example function answers, and how often it is right."""

import numpy as np
import pytest
import tensorflow as tf


@pytest.fixture
def model(load_example):
    return load_example("language", "model")


@pytest.fixture
def language(model):
    return tf.function(model.language, input_signature=[tf.TensorSpec([], tf.string)])


def test_knows_everyday_sentences(load_example, model, language) -> None:
    sentences = load_example("language", "client").SENTENCES
    assert [truth for truth, _ in sentences if truth not in model.LANGUAGES] == []
    assert len(model.LANGUAGES) >= 12
    predicted = [language(tf.constant(text))["language"].numpy().decode() for _, text in sentences]
    assert predicted == [truth for truth, _ in sentences]


@pytest.mark.parametrize("text", ["", "a", "ж", "😀", " ", b"\xff\xfe", "x" * 300])
def test_any_text_gets_an_answer(model, language, text: str | bytes) -> None:
    outputs = language(tf.constant(text))
    assert outputs["language"].numpy().decode() in model.LANGUAGES
    assert outputs["probabilities"].shape == [len(model.LANGUAGES)]
    assert outputs["probabilities"].dtype == tf.float32
    assert float(tf.reduce_sum(outputs["probabilities"])) == pytest.approx(1.0, abs=1e-5)


def test_capitals_make_no_difference(language) -> None:
    small = language(tf.constant("straße über öl"))["probabilities"]
    np.testing.assert_array_equal(language(tf.constant("STRAßE ÜBER ÖL"))["probabilities"], small)


def test_samples_cover_the_lengths_that_are_served(model) -> None:
    generator = np.random.default_rng(0)
    texts = [model.sample_text(generator)["text"] for _ in range(400)]
    lengths = [len(text) for text in texts]
    assert (min(lengths), max(lengths)) == (1, 60)
    assert lengths.count(1) >= 20
    assert sum(not text.isascii() for text in texts) >= 100


def test_held_out_accuracy_on_unseen_words(load_example, model, language) -> None:
    train = load_example("language", "train")
    assert model.LANGUAGES == train.LANGUAGES
    texts, labels = train.held_out_phrases(count_per_length=60)
    predicted = [language(tf.constant(text))["language"].numpy().decode() for text in texts]
    truth = [model.LANGUAGES[label] for label in labels]
    assert np.mean(np.array(predicted) == truth) >= 0.88


def test_held_out_words_are_not_trained_on(load_example) -> None:
    phrases = load_example("language", "phrases")
    sides = [phrases.PhraseSource(held_out=side, seed=0) for side in (False, True)]
    trained, held_out = ({word for words in side._words for word in words} for side in sides)
    assert len(held_out) > 10_000
    assert not trained & held_out


def test_served_function_equals_the_batch_that_was_trained(load_example, language) -> None:
    train = load_example("language", "train")
    arrays = dict(np.load(train.WEIGHTS_FILE))
    weights = {name: a.astype(np.float32) for name, a in arrays.items() if a.dtype == np.float16}
    texts, _ = train.held_out_phrases(count_per_length=4)
    expected = tf.nn.softmax(train.batched_logits(weights, *map(tf.constant, train.pad(texts))))
    served = [language(tf.constant(text))["probabilities"] for text in texts]
    np.testing.assert_allclose(served, expected, atol=1e-5)
