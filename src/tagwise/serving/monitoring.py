"""Counts for Prometheus."""

from __future__ import annotations

import os
from typing import Any

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
        self._registry = CollectorRegistry()
        here: dict[str, Any] = {"registry": self._registry}
        kind = ["tagger", "kind"]
        said = "Requests by tagger, kind and the status of the answer."
        self.requests = Counter("tagwise_requests", said, [*kind, "status"], **here)
        said = "Time from the headers of a request to its answer."
        self.seconds = Histogram("tagwise_request_seconds", said, kind, buckets=_SECONDS, **here)
        said = "Texts answered in one call."
        self.batch_texts = Histogram("tagwise_batch_texts", said, ["tagger"], buckets=_SIZES, **here)
        self.texts = Counter("tagwise_texts", "Texts passed to the model.", ["tagger"], **here)
        said = "Texts without a known word."
        self.unknown_texts = Counter("tagwise_texts_without_known_word", said, ["tagger"], **here)
        self.feedback = Counter("tagwise_feedback_tags", "Tags answered by people.", ["tagger", "answer"], **here)
        self.model = Gauge(
            "tagwise_model_loaded_timestamp_seconds",
            "Load time of the model in use; 0 for replaced models.",
            ["tagger", "version"],
            multiprocess_mode="mostrecent",
            **here,
        )

    def texts_answered(self, tagger: str, count: int, unknown: int) -> None:
        """Count the texts of one call, and those without a known word."""
        self.batch_texts.labels(tagger).observe(count)
        self.texts.labels(tagger).inc(count)
        self.unknown_texts.labels(tagger).inc(unknown)

    def page(self) -> bytes:
        """All counts as text; of all processes where there are several."""
        if MULTIPROCESS not in os.environ:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)
        return generate_latest(together)
