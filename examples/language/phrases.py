"""Labelled phrases for training and for an honest test: no word occurs in both.

The words are wordfreq's most frequent ones of each language. The commonest 200 always train (a served
model should know "the"); the others are dealt out by a hash of the word, nine in ten to training. A
phrase is 1 to 8 words of one side, frequent ones more often.
"""

import hashlib
import unicodedata

import numpy as np
import wordfreq

# Language and the script that its words must be written in (word lists hold foreign words as well).
SCRIPTS = {
    "ar": "ARABIC",
    "de": "LATIN",
    "el": "GREEK",
    "en": "LATIN",
    "es": "LATIN",
    "fi": "LATIN",
    "fr": "LATIN",
    "it": "LATIN",
    "ko": "HANGUL",
    "nl": "LATIN",
    "pl": "LATIN",
    "pt": "LATIN",
    "ru": "CYRILLIC",
    "sv": "LATIN",
    "tr": "LATIN",
    "uk": "CYRILLIC",
}
LANGUAGES = tuple(SCRIPTS)
WORDS_PER_LANGUAGE = 20_000
ALWAYS_TRAINED = 200
MAX_CHARACTERS = 60


def is_held_out(word: str) -> bool:
    """Whether a word below the commonest belongs to the test; the same in every language."""
    return hashlib.sha256(word.encode()).digest()[0] % 10 == 0


def words_of(language: str) -> list[str]:
    """The language's frequent words in its own script, most frequent first."""
    words = []
    for word in wordfreq.top_n_list(language, WORDS_PER_LANGUAGE):
        if all(unicodedata.name(letter, "").startswith(SCRIPTS[language]) for letter in word):
            # wordfreq folds the final sigma into the usual one; real Greek text has it.
            words.append(word[:-1] + "ς" if word.endswith("σ") else word)
    return words


class PhraseSource:
    """Draws labelled phrases from the words of one side (``held_out`` or not), reproducibly."""

    def __init__(self, held_out: bool, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        ranked = {language: list(enumerate(words_of(language))) for language in LANGUAGES}
        always_trained = {word for words in ranked.values() for _, word in words[:ALWAYS_TRAINED]}
        self._words: list[list[str]] = []
        self._cumulative: list[np.ndarray] = []
        for words in ranked.values():
            side = [
                (rank, word) for rank, word in words if (word not in always_trained and is_held_out(word)) == held_out
            ]
            # Flatter than Zipf's law, so that the rare words' spelling is learnt too.
            weights = np.array([(rank + 10.0) ** -0.7 for rank, _ in side])
            self._words.append([word for _, word in side])
            self._cumulative.append(np.cumsum(weights) / weights.sum())

    def phrase(self, label: int, word_count: int) -> str:
        """``word_count`` words of language ``LANGUAGES[label]``, cut to MAX_CHARACTERS."""
        places = np.searchsorted(self._cumulative[label], self._generator.random(word_count))
        words = self._words[label]
        return " ".join(words[min(place, len(words) - 1)] for place in places)[:MAX_CHARACTERS].rstrip()

    def batch(self, size: int, word_count: int) -> tuple[list[str], np.ndarray]:
        """``size`` phrases and their labels [size] int32; one phrase in eight is cut to a prefix."""
        labels = self._generator.integers(0, len(LANGUAGES), size).astype(np.int32)
        phrases = [self.phrase(label, word_count) for label in labels]
        for i in np.flatnonzero(self._generator.random(size) < 0.125):
            phrases[i] = phrases[i][: int(self._generator.integers(1, len(phrases[i]) + 1))].rstrip()
        return phrases, labels
