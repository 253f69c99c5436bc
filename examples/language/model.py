"""Which language is this text? A character GRU, written for one text of any length."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from server import model

_weights = np.load(Path(__file__).with_name("weights.npz"))


def _parameter(name: str) -> tf.Tensor:
    """One weight array: stored as float16, computed with as float32."""
    return tf.constant(_weights[name].astype(np.float32), name=name)


EMBEDDING = _parameter("embedding")  # [character ids, embedding]
INPUT_KERNEL = _parameter("input_kernel")  # [embedding, 3 * hidden]: update, reset, candidate
INPUT_BIAS = _parameter("input_bias")  # [3 * hidden]
RECURRENT_KERNEL = _parameter("recurrent_kernel")  # [hidden, 3 * hidden]
RECURRENT_BIAS = _parameter("recurrent_bias")  # [3 * hidden]
OUTPUT_KERNEL = _parameter("output_kernel")  # [hidden, languages]
OUTPUT_BIAS = _parameter("output_bias")  # [languages]
LANGUAGES = tuple(str(language) for language in _weights["languages"])

CHARACTER_IDS, _ = EMBEDDING.shape
HIDDEN, _ = RECURRENT_KERNEL.shape

_SAMPLE_TEXTS = (
    "Where does the train to the coast leave from?",
    "Der Zug zur Küste fährt heute später ab, glaube ich.",
    "Où se trouve la gare la plus proche, s'il vous plaît ?",
    "El tren de la costa sale mañana a las ocho.",
    "Il treno per la costa parte più tardi, credo.",
    "O comboio para a costa não saiu ainda da estação.",
    "De trein naar de kust vertrekt vandaag iets later.",
    "Tåget till kusten går inte förrän i morgon, tyvärr.",
    "Juna rannikolle lähtee vasta huomenna aamulla.",
    "Pociąg nad morze odjeżdża dziś trochę później.",
    "Sahile giden tren bugün biraz geç kalkıyor, sanırım.",
    "Поезд к морю сегодня отправляется немного позже.",
    "Потяг до моря сьогодні вирушає трохи пізніше.",
    "Το τρένο για την ακτή φεύγει αύριο το πρωί.",
    "القطار إلى الساحل يغادر غدا في الصباح الباكر",
    "바다로 가는 기차는 내일 아침에 출발합니다",
)


def sample_text(generator: np.random.Generator) -> dict[str, str]:
    """A piece of 1 to 60 characters cut out of everyday sentences; one in eight has a single character.

    Every fourth stays in one language, so that the longest in bytes, those in Korean, occur too.
    """
    if generator.random() < 0.25:
        text = " ".join([_SAMPLE_TEXTS[generator.integers(len(_SAMPLE_TEXTS))]] * 4)
    else:
        text = " ".join(_SAMPLE_TEXTS[i] for i in generator.choice(len(_SAMPLE_TEXTS), size=2, replace=False))
    length = 1 if generator.random() < 0.125 else int(generator.integers(1, 61))
    start = int(generator.integers(0, len(text) - length + 1))
    return {"text": text[start : start + length]}


def gru_step(x: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
    """The state [hidden] after reading one character's embedding x [embedding] in state h [hidden]."""
    from_input = tf.tensordot(x, INPUT_KERNEL, 1) + INPUT_BIAS
    from_state = tf.tensordot(h, RECURRENT_KERNEL, 1) + RECURRENT_BIAS
    update_x, reset_x, candidate_x = tf.split(from_input, 3)
    update_h, reset_h, candidate_h = tf.split(from_state, 3)
    update = tf.sigmoid(update_x + update_h)
    candidate = tf.tanh(candidate_x + tf.sigmoid(reset_x + reset_h) * candidate_h)
    return update * h + (1.0 - update) * candidate


@model(
    name="language",
    inputs={"text": tf.TensorSpec([], tf.string)},
    samples=sample_text,
    max_batch_size=64,
    max_length=2000,
)
def language(text: tf.Tensor) -> dict[str, tf.Tensor]:
    """The language (ISO 639-1 code) of a UTF-8 text, and the probability of each of LANGUAGES."""
    codepoints = tf.strings.unicode_decode(tf.strings.lower(text, encoding="utf-8"), "UTF-8")
    embedded = tf.gather(EMBEDDING, tf.math.floormod(codepoints, CHARACTER_IDS))
    n = tf.shape(embedded)[0]
    _, state = tf.while_loop(
        lambda t, h: t < n,
        lambda t, h: (t + 1, gru_step(tf.gather(embedded, t), h)),
        (tf.constant(0), tf.zeros([HIDDEN])),
    )
    logits = tf.tensordot(state, OUTPUT_KERNEL, 1) + OUTPUT_BIAS
    return {
        "language": tf.gather(tf.constant(LANGUAGES), tf.argmax(logits)),
        "probabilities": tf.nn.softmax(logits),
    }
