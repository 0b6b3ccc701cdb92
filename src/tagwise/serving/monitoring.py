"""Counts for Prometheus."""

from __future__ import annotations

import os

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

__all__ = ["CONTENT_TYPE_LATEST", "MULTIPROCESS", "Monitoring"]

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder in which several processes keep their counts."""

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Monitoring:
    """The counters of one application."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "tagwise_requests",
            "Requests by tagger, kind and the status of the answer.",
            ["tagger", "kind", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "tagwise_request_seconds",
            "Time from the headers of a request to its answer.",
            ["tagger", "kind"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.batch_texts = Histogram(
            "tagwise_batch_texts", "Texts answered in one call.", ["tagger"], buckets=_SIZES, registry=registry
        )
        self.texts = Counter("tagwise_texts", "Texts that the model was asked about.", ["tagger"], registry=registry)
        self.unknown_texts = Counter(
            "tagwise_texts_without_known_word", "Texts without a word that training saw.", ["tagger"], registry=registry
        )
        self.feedback = Counter(
            "tagwise_feedback_tags", "Tags that people answered.", ["tagger", "answer"], registry=registry
        )
        self.model = Gauge(
            "tagwise_model_loaded_timestamp_seconds",
            "When the model that is served was loaded; 0 for those that were replaced.",
            ["tagger", "version"],
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self._versions: dict[str, str] = {}

    def count(self, tagger: str, kind: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests.labels(tagger, kind, str(status)).inc()
        self.seconds.labels(tagger, kind).observe(seconds)

    def note_texts(self, tagger: str, count: int, unknown: int) -> None:
        """Count texts that the model was asked about in one call, and those without a word that training saw."""
        self.batch_texts.labels(tagger).observe(count)
        self.texts.labels(tagger).inc(count)
        self.unknown_texts.labels(tagger).inc(unknown)

    def note_model(self, tagger: str, version: str, loaded: float) -> None:
        """Note which model is served since when (seconds since 1970)."""
        before = self._versions.get(tagger)
        if before not in (None, version):
            self.model.labels(tagger, before).set(0)
        self._versions[tagger] = version
        self.model.labels(tagger, version).set(loaded)

    def page(self) -> bytes:
        """All counts as text; of all processes where there are several."""
        if MULTIPROCESS not in os.environ:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)
        return generate_latest(together)
