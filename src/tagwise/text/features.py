"""TF-IDF features of texts: words and, on request, pairs of words and character n-grams.

Words are counted by scikit-learn's ``CountVectorizer``. Its ``TfidfVectorizer`` makes the same matrix of words up to
the last bit (24,240 texts of debtags: 0.62 s of CPU against 0.74 s here), but takes 0.30 ms for a single text, against
0.10 ms; it has one ``min_df`` and one ``max_features`` for all kinds of terms, keeps no terms below them, and can
neither add counts of parts of the texts nor extend a vocabulary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import CountVectorizer

from tagwise.exceptions import InvalidInputError, InvalidTypeError, NotFittedError, TagwiseWarning, warn
from tagwise.fields import take
from tagwise.kernels import unit_rows
from tagwise.parameters import Count, check_parameters, parameters
from tagwise.progress import counted
from tagwise.store.folder import require_same
from tagwise.validation import check_real

__all__ = ["CHARACTERS_PREFIX", "WORD_PATTERN", "TermCounts", "TextFeatures", "check_texts", "places_of", "words_in"]

WORD_PATTERN = r"(?u)\b\w\w+\b"
"""Pattern of a word in lower-cased text: at least two letters, digits or underscores."""

CHARACTERS_PREFIX = "char:"
"""Starts the names of character n-grams. No word can look like one: words hold letters, digits and underscores."""

_ANALYZERS = {"words": ("word", (1, 1)), "bigrams": ("word", (2, 2)), "characters": ("char_wb", (3, 5))}
"""Kind of term → analyzer and n-gram lengths of ``CountVectorizer``."""

_NAMES = {"words": "word", "bigrams": "pair of words", "characters": "character n-gram"}

_SEPARATOR = "\n"

# Where more of the texts than this have no feature, words do not describe them.
_LOST_ROWS, _FEWEST_LOST = 0.1, 2
# Characters between blanks on average: in no language with spaces more than the first; Chinese, Japanese, Thai, Lao,
# Burmese and Khmer, whose letters are listed, are written without, unless somebody has cut them into words.
_LONGEST_RUN, _LONGEST_UNSPACED = 25, 5
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
_LOOKED_AT = 500  # texts


@dataclass(frozen=True, eq=False)
class TermCounts:
    """Number of texts with each term: all that features depend on. Counts of parts of the texts add up (:meth:`plus`).

    Attributes
    ----------
    n_texts : int
    texts_with, occurrences : dict of str to Counter of str
        By kind, the number of texts that have each term, and of its occurrences.
    spacing : int64 array (3,)
        Of some of the texts: runs between blanks, their characters, and those of writings without spaces.
    """

    n_texts: int
    texts_with: dict[str, Counter[str]]
    occurrences: dict[str, Counter[str]]
    spacing: np.ndarray

    def plus(self, *others: TermCounts) -> TermCounts:
        """Counts of all texts of these together; time linear in the terms of all."""
        parts = (self, *others)
        texts_with, occurrences = ({kind: Counter[str]() for kind in self.texts_with} for _ in range(2))
        for part in parts:
            for kind in texts_with:
                texts_with[kind].update(part.texts_with[kind])
                occurrences[kind].update(part.occurrences[kind])
        spacing = np.sum([part.spacing for part in parts], axis=0)
        return TermCounts(sum(part.n_texts for part in parts), texts_with, occurrences, spacing)


@parameters
class TextFeatures(TransformerMixin, BaseEstimator):
    """Texts as rows of unit length that weigh each word by how often and how rarely it occurs.

    A word that occurs t > 0 times in a text, and in m of the n training texts, gets the weight (1 + ln t) ·
    (1 + ln((1 + n) / (1 + m))). Words are lower-cased runs of at least two letters, digits or underscores. Those
    unknown at ``fit`` do not count, so a text without any known word is an empty row.

    With ``bigrams``, two words that follow each other count as well, which recognises phrases; with ``characters``, so
    do runs of 3 to 5 characters within a word and one space on either side of it, which recognise parts of words,
    spellings not seen in training, and texts without spaces. Rows are scaled over all together.

    Parameters
    ----------
    min_df : int, default 2
        Leave out words, bigrams and character n-grams that occur in fewer training texts than this.
    max_df : float, default 1.0
        Leave out those that occur in more than this share of the training texts, as stop words do; 1 keeps all.
    max_features : int or None, default None
        Keep only this many words, the most frequent ones, as many bigrams, and as many character n-grams.
    bigrams : bool, default False
        Whether to count pairs of words beside words.
    characters : bool, default False
        Whether to count character n-grams beside words.
    sublinear_tf : bool, default True
        Whether t times count 1 + ln t, as above; False: t.

    Attributes
    ----------
    feature_names : list of str
        In column order: the words (sorted), the bigrams (sorted), such as ``"red wine"``, and the character n-grams
        (sorted), each written as ``char:`` and the n-gram with its spaces, such as ``"char: pre"`` for words that start
        with "pre".
    idf_ : array of float32, shape (features,)
        The second factor of the weight.
    n_words_ : int
        Number of features that are words.

    Notes
    -----
    Memory and time are linear in the length of the texts, about three times as much with ``bigrams`` and ten times with
    ``characters``.
    """

    _: KW_ONLY
    min_df: Count = 2
    max_df: Annotated[float, partial(check_real, minimum=0, maximum=1, open_minimum=True)] = 1.0
    max_features: Count | None = None
    bigrams: bool = False
    characters: bool = False
    sublinear_tf: bool = True

    def fit(self, texts: Iterable[str], y: Any = None) -> TextFeatures:
        """Collect the vocabulary and its weights; ``y`` is ignored.

        Raises
        ------
        InvalidInputError
            If there are no texts, or no word is in ``min_df`` of them.
        """
        self.fit_transform(texts)
        return self

    def fit_transform(
        self, texts: Iterable[str], y: Any = None, *, also: Iterable[str] = (), **fit_params: Any
    ) -> sp.csr_matrix:
        """``fit`` and ``transform`` of the same texts, at half the cost.

        ``also``: words that become features whatever their number of texts, besides ``max_features`` others, such as
        words of new tags' names.
        """
        check_parameters(self)
        rows = check_texts(texts)
        if not rows:
            raise InvalidInputError("texts is empty; at least one text is needed to fit TF-IDF features.")
        counts, matrices = self._counted(rows, 0, len(rows))
        self.fit_counts(counts, also)
        for kind, matrix in matrices.items():
            place = {term: column for column, term in enumerate(counts.texts_with[kind])}
            columns = np.array([place.get(term, -1) for term in self._terms[kind]], dtype=np.int64)
            matrices[kind] = take(matrix, columns, axis=1)
        X = self._weighed(matrices)
        self.warn_of_lost_words(len(rows), int(np.count_nonzero(np.diff(X.indptr) == 0)), counts.spacing)
        return X

    def count(self, texts: Iterable[str], first: int = 0, n_texts: int | None = None) -> TermCounts:
        """Counts of some of the texts for :meth:`fit_counts`; the first is number ``first`` of ``n_texts``."""
        check_parameters(self)
        rows = check_texts(texts)
        return self._counted(rows, first, len(rows) if n_texts is None else n_texts)[0]

    def fit_counts(self, counts: TermCounts, also: Iterable[str] = ()) -> TextFeatures:
        """As :meth:`fit`, of texts that were counted; ``also`` as in :meth:`fit_transform`."""
        check_parameters(self)
        terms = {}
        for kind in self._kinds():
            chosen = self._chosen(kind, counts, counts.n_texts, self.max_features)
            # Texts without spaces, of which no two share a phrase, still share characters.
            if not chosen and not (self.characters and kind != "characters"):
                raise self._no_terms(kind, counts)
            terms[kind] = sorted({*chosen, *also} if kind == "words" else chosen)
        idf = {kind: _idf(some, counts.texts_with[kind], counts.n_texts) for kind, some in terms.items()}
        return self._set_terms(terms, idf)

    def _chosen(
        self, kind: str, counts: TermCounts, n_texts: int, most: int | None, known: Collection[str] = ()
    ) -> list[str]:
        """Terms but the ``known`` ones in as many texts as the parameters say, the ``most`` frequent of them."""
        highest, occurrences = self.max_df * n_texts, counts.occurrences[kind]
        found = counts.texts_with[kind].items()
        chosen = [term for term, count in found if self.min_df <= count <= highest and term not in known]
        if most is not None and len(chosen) > most:
            chosen = sorted(chosen, key=lambda term: (-occurrences[term], term))[:most]
        return chosen

    def _counted(self, texts: list[str], first: int, n_texts: int) -> tuple[TermCounts, dict[str, sp.csr_matrix]]:
        """The counts, and for each kind how often each text has each term."""
        matrices: dict[str, sp.csr_matrix] = {}
        texts_with, occurrences = {}, {}
        for kind in self._kinds():
            counter = _counter(kind)
            try:
                matrices[kind] = X = sp.csr_matrix(counter.fit_transform(texts))
                terms = [str(term) for term in counter.get_feature_names_out()]
            except ValueError:  # no text has any
                matrices[kind], terms = sp.csr_matrix((len(texts), 0), dtype=np.float32), []
            X = matrices[kind]
            often = np.bincount(X.indices, X.data, X.shape[1]).astype(np.int64)
            texts_with[kind] = Counter(dict(zip(terms, np.bincount(X.indices, minlength=X.shape[1]).tolist())))
            occurrences[kind] = Counter(dict(zip(terms, often.tolist())))
        step = 1 + n_texts // _LOOKED_AT
        return TermCounts(len(texts), texts_with, occurrences, _spacing(texts[-first % step :: step])), matrices

    def transform(self, texts: Iterable[str]) -> sp.csr_matrix:
        """Features of texts, one row each, as float32 CSR; memory and time are linear in their length."""
        self._require_fitted()
        rows = check_texts(texts)
        if not rows:
            return sp.csr_matrix((0, len(self.feature_names)), dtype=np.float32)
        counts = {}
        for kind, terms in self._terms.items():
            if terms and kind not in self._counters:
                self._counters[kind] = _counter(kind, vocabulary=terms)
            none = sp.csr_matrix((len(rows), 0), dtype=np.float32)  # CountVectorizer refuses an empty vocabulary
            counts[kind] = sp.csr_matrix(self._counters[kind].transform(rows)) if terms else none
        return self._weighed(counts)

    def _weighed(self, counts: dict[str, sp.csr_matrix]) -> sp.csr_matrix:
        """(1 + ln t)·idf, or t·idf, for every count t; all kinds side by side in rows of unit length."""
        blocks = []
        for kind, X in counts.items():
            X.sort_indices()
            data = X.data.astype(np.float32)
            if self.sublinear_tf:
                data = np.log(data, dtype=np.float32)
                data += np.float32(1)
            data *= self._idf[kind][X.indices]
            blocks.append(sp.csr_matrix((data, X.indices, X.indptr), shape=X.shape))
        return sp.csr_matrix(unit_rows(blocks[0] if len(blocks) == 1 else sp.hstack(blocks, format="csr")))

    def unknown_words(self, texts: Iterable[str]) -> tuple[np.ndarray, Counter[str]]:
        """Share of the words of each text that are no features (n), and number of texts with each such word.

        Every occurrence of a word counts; NaN for texts without words.
        """
        self._require_fitted()
        known, shares, found = set(self._terms["words"]), [], Counter[str]()
        for text in check_texts(texts):
            words = re.findall(WORD_PATTERN, text.lower())
            unknown = [word for word in words if word not in known]
            shares.append(len(unknown) / len(words) if words else np.nan)
            found.update(set(unknown))
        return np.array(shares), found

    def extended(self, texts: Iterable[str], n_before: int) -> tuple[TextFeatures, np.ndarray]:
        """These features with the terms that texts bring beside the ``n_before`` that they were fitted to.

        Terms that ``min_df`` of the new texts have become features, unless ``max_features`` are there already.

        Returns
        -------
        features : TextFeatures
            Known terms keep their weights, so that rows that have been made stay as they are. A new term has that of
            the texts that have it among all texts, as if no earlier one did: fewer than ``min_df`` had it.
        source : int array (features,)
            The column that each feature had before; −1 for new ones.
        """
        self._require_fitted()
        check_parameters(self)
        rows = check_texts(texts)
        counts, _ = self._counted(rows, 0, max(1, len(rows)))
        n_texts, source, n_old = n_before + counts.n_texts, [], 0
        all_terms, all_idf = {}, {}
        for kind, known in self._terms.items():
            room = None if self.max_features is None else max(0, self.max_features - len(known))
            new = self._chosen(kind, counts, n_texts, room, set(known))
            terms = [*known, *new]
            order = np.array(sorted(range(len(terms)), key=terms.__getitem__), dtype=np.int64)
            all_terms[kind] = [terms[place] for place in order.tolist()]
            all_idf[kind] = np.concatenate([self._idf[kind], _idf(new, counts.texts_with[kind], n_texts)])[order]
            source.append(np.where(order < len(known), order + n_old, -1))
            n_old += len(known)
        features = TextFeatures(**self.get_params(deep=False))._set_terms(all_terms, all_idf)
        return features, np.concatenate(source)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """``feature_names``, for scikit-learn."""
        self._require_fitted()
        return np.array(self.feature_names, dtype=object)

    # ------------------------------------------------------------------ folders

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The fitted state as plain arrays, for :meth:`from_arrays`.

        ``words``, ``words_idf`` and, where they are counted, ``bigrams``, ``bigrams_idf``, ``characters``,
        ``characters_idf``. Terms are UTF-8 text joined by line feeds, in column order.
        """
        self._require_fitted()
        terms = {kind: _joined(some) for kind, some in self._terms.items()}
        return terms | {f"{kind}_idf": idf for kind, idf in self._idf.items()}

    @classmethod
    def from_arrays(cls, parameters: dict[str, Any], arrays: dict[str, np.ndarray]) -> TextFeatures:
        """The extractor that ``parameters`` and :meth:`to_arrays` describe; its features are bit-identical.

        Raises
        ------
        ValueError, KeyError, AttributeError
            The arrays cannot come from :meth:`to_arrays` with these parameters.
        """
        features = cls(**parameters)
        check_parameters(features)
        kinds = features._kinds()
        require_same("arrays of the features", set(arrays), {name for kind in kinds for name in (kind, f"{kind}_idf")})
        terms, idf = {}, {}
        for kind in kinds:
            joined, idf[kind] = arrays[kind].tobytes().decode(), arrays[f"{kind}_idf"]
            terms[kind] = joined.split(_SEPARATOR) if joined else []
            different = arrays[kind].dtype == np.uint8 and len({"", *terms[kind]}) == len(terms[kind]) + 1
            weighed = idf[kind].dtype == np.float32 and idf[kind].shape == (len(terms[kind]),)
            if not (different and weighed and (np.isfinite(idf[kind]) & (idf[kind] > 0)).all()):
                raise ValueError(f"{kind} must be different terms, with a finite weight above 0 for each")
        if not any(terms.values()):
            raise ValueError("the features have no term")
        return features._set_terms(terms, idf)

    # ------------------------------------------------------------------ inside

    def __sklearn_tags__(self) -> Any:
        return takes_texts(super().__sklearn_tags__())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_terms")

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("This TextFeatures is not fitted yet; call fit with the training texts first.")

    def _kinds(self) -> tuple[str, ...]:
        return ("words", *(kind for kind in ("bigrams", "characters") if getattr(self, kind)))

    def _no_terms(self, kind: str, counts: TermCounts) -> InvalidInputError:
        most = "" if self.max_df == 1 else f" and at most max_df={self.max_df:g}"
        advice = f"give more text or lower min_df{' or raise max_df' if most else ''}"
        if kind == "words" and _hardly_spaced(counts.spacing):
            advice = "they have hardly any spaces between words: characters=True (--characters) counts parts of them"
        return InvalidInputError(
            f"texts hold no {_NAMES[kind]} that is in at least min_df={self.min_df}{most} of the "
            f"{counts.n_texts:,} texts; {advice}."
        )

    def warn_of_lost_words(self, n_texts: int, without: int, spacing: np.ndarray) -> None:
        """Warn if words are unsuitable features: ``without`` of the texts have no known word."""
        if self.characters:
            return
        what = ""
        if _hardly_spaced(spacing):
            what = "texts have hardly any spaces between words, so that whole phrases count as words"
        elif without > max(_FEWEST_LOST, _LOST_ROWS * n_texts):
            what = f"{without:,} of {counted(n_texts, 'text')} have no word that is a feature: all of them look alike"
        if what:
            warn(f"{what}. characters=True (--characters) counts runs of characters beside words.", TagwiseWarning)

    def _set_terms(self, terms: dict[str, list[str]], idf: dict[str, np.ndarray]) -> TextFeatures:
        for some in terms.values():
            _joined(some)  # what could not be saved is refused before anything is learnt from it
        self._terms, self._idf, self._counters = terms, idf, dict[str, CountVectorizer]()
        self.n_words_ = len(terms["words"])
        self.feature_names = [
            (CHARACTERS_PREFIX if kind == "characters" else "") + term for kind, some in terms.items() for term in some
        ]
        self.idf_ = np.concatenate(list(idf.values()))
        return self


def _idf(terms: Sequence[str], texts_with: Mapping[str, int], n_texts: int) -> np.ndarray:
    n_with = np.array([texts_with.get(term, 0) for term in terms], dtype=np.int64)
    return np.asarray((1 + np.log((1 + n_texts) / (1 + n_with))).astype(np.float32))


def _counter(kind: str, **settings: Any) -> CountVectorizer:
    analyzer, lengths = _ANALYZERS[kind]
    return CountVectorizer(
        analyzer=analyzer, ngram_range=lengths, token_pattern=WORD_PATTERN, dtype=np.float32, **settings
    )


def _spacing(texts: Sequence[str]) -> np.ndarray:
    """Runs between blanks, their characters, and how many of those are of writings without spaces."""
    runs = [run for text in texts for run in text.split()]
    return np.array([len(runs), sum(map(len, runs)), sum(len(_UNSPACED.findall(run)) for run in runs)], dtype=np.int64)


def _hardly_spaced(spacing: np.ndarray) -> bool:
    """Whether words are written without spaces between them."""
    runs, letters, unspaced = spacing.tolist()
    return letters > _LONGEST_RUN * runs or (2 * unspaced > letters and letters > _LONGEST_UNSPACED * runs)


def _joined(terms: Sequence[str]) -> np.ndarray:
    """The terms as UTF-8 text, joined by line feeds: a uint8 array that any program can read."""
    try:
        return np.frombuffer(_SEPARATOR.join(terms).encode(), dtype=np.uint8)
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            "texts hold a lone surrogate, which is not a Unicode character: they were read from bytes that are not "
            f"UTF-8. Read the file in its own encoding ({error.reason})."
        ) from None


def words_in(text: str) -> Iterator[tuple[int, int, str]]:
    """The words of a text as ``TextFeatures`` counts them: where each starts and ends in the text, and its feature."""
    lowered = text.lower()
    origin = _origin(text, lowered)
    for match in re.finditer(WORD_PATTERN, lowered):
        yield origin[match.start()], origin[match.end() - 1] + 1, match.group()


def places_of(text: str, names: Iterable[str]) -> dict[str, list[tuple[int, int]]]:
    """Positions of features in a text: the start and end of each occurrence, in characters.

    Time is linear in the length of the text.
    """
    places: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    for start, end, word in words_in(text):
        if word in places:
            places[word].append((start, end))
    grams = {name.removeprefix(CHARACTERS_PREFIX) for name in places if name.startswith(CHARACTERS_PREFIX)}
    if not grams:
        return places
    lowered = text.lower()
    origin = _origin(text, lowered)
    for match in re.finditer(r"\S+", lowered):
        # N-grams count the spaces around a word, which are not part of the place.
        spaced, first, last = f" {match.group()} ", match.start(), match.end() - 1
        for length in {len(gram) for gram in grams}:
            for start in range(len(spaced) - length + 1):
                if (gram := spaced[start : start + length]) in grams:
                    begin, end = max(first, first + start - 1), min(last, first + start + length - 2)
                    places[CHARACTERS_PREFIX + gram].append((origin[begin], origin[end] + 1))
    return places


def _origin(text: str, lowered: str) -> Sequence[int]:
    """For each character of the lower-cased text, which one of the text it is of: "İ" becomes two."""
    if len(lowered) == len(text):
        return range(len(text))
    return [place for place, character in enumerate(text) for _ in character.lower()]


def takes_texts(tags: Any) -> Any:
    """The tags of an estimator, as scikit-learn has them, with a list of texts for X."""
    tags.input_tags.string = tags.input_tags.one_d_array = True
    tags.input_tags.two_d_array = False
    return tags


def check_texts(texts: Iterable[str], *, first: int = 0) -> list[str]:
    """A list of strings, from any iterable of them but a string itself; ``first`` is the position of the first one."""
    if isinstance(texts, (str, bytes)):
        raise InvalidTypeError("texts must be a list of strings; found one string. Put it in a list: [text].")
    if hasattr(texts, "columns"):  # iterating over a table gives the names of its columns
        raise InvalidTypeError(
            f"texts must be one column of strings; found a table of {counted(len(texts.columns), 'column')}. Choose "
            "one: table[column]."
        )
    try:
        rows = list(texts)
    except TypeError:
        raise InvalidTypeError(f"texts must be a list of strings; found {type(texts).__name__}.") from None
    for number, text in enumerate(rows, first):
        if not isinstance(text, str):
            raise InvalidTypeError(f"texts must hold strings; found {text!r:.60} at position {number}.")
    return rows
