"""Options of a server, and its keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tagwise.exceptions import InvalidInputError

__all__ = ["ServingOptions", "read_keys"]


@dataclass(frozen=True)
class ServingOptions:
    """Options of a server. Every number is a limit of one process.

    Attributes
    ----------
    taggers : dict of str to str
        Folders by the names that they are served under.
    feedback : str or None
        File that answers are appended to; None: answers are refused.
    queue : str or None
        File of texts to work through on the page.
    queue_text : tuple of str
        Columns of these texts; empty: guessed.
    keys : tuple of str
        Keys of which every request must carry one; empty: no key is needed.
    hosts : tuple of str or None
        Names of this server that requests may be addressed to, beside IP addresses and ``localhost``; None: any.
    most_bytes : int
        Size of the body of a request.
    most_texts : int
        Texts in one request.
    most_waiting : int
        Maximum number of waiting texts; further requests get status 503. Every 16,384 characters
        of a text count as one more.
    most_per_minute : int
        Requests of one key; 0: any number.
    seconds : float
        Time for an answer.
    watch_seconds : float
        Interval of checks for new models in the folders; 0: never.
    log_texts : bool
        Whether texts of requests may be logged.
    shared : str or None
        Folder for copies of the models, which several processes share in memory; None: a process reads its own. Either
        way, changes of a tagger's folder do not affect a model in use.
    """

    taggers: dict[str, str]
    feedback: str | None = None
    queue: str | None = None
    queue_text: tuple[str, ...] = ()
    keys: tuple[str, ...] = field(default=(), repr=False)
    hosts: tuple[str, ...] | None = None
    most_bytes: int = 4 * 2**20
    most_texts: int = 256
    most_waiting: int = 4096
    most_per_minute: int = 0
    seconds: float = 30.0
    watch_seconds: float = 1.0
    log_texts: bool = False
    shared: str | None = None

    def __post_init__(self) -> None:
        if not self.taggers:
            raise InvalidInputError("taggers is empty; name at least one folder of a tagger.")
        for name in self.taggers:
            if not name or len(name) > 100 or not all(c.isalnum() or c in "-_." for c in name) or name.startswith("."):
                raise InvalidInputError(
                    f"{name!r:.120} cannot be part of an address; a tagger's name has letters, digits, - and _ only."
                )
        for what in ("most_bytes", "most_texts", "seconds"):
            if not getattr(self, what) > 0:
                raise InvalidInputError(f"{what} must be above 0; found {getattr(self, what)}.")
        if self.most_per_minute and not self.keys:
            raise InvalidInputError(
                "most_per_minute limits the requests of each key, but there are no keys; give keys, or leave it out."
            )
        if self.most_waiting < self.most_texts:
            raise InvalidInputError(
                f"most_waiting is {self.most_waiting:,}, which is less than the {self.most_texts:,} texts of one "
                "request (most_texts); raise it."
            )


def read_keys(path: str) -> tuple[str, ...]:
    """The keys of a file, one per line; empty lines and those that start with # are left out."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InvalidInputError(f"--key-file: {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"--key-file: {path} is not text in UTF-8.") from None
    keys = tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    if not keys:
        raise InvalidInputError(f"--key-file: {path} holds no key; write one per line.")
    for key in keys:
        if len(key) < 16 or not key.isascii() or " " in key:
            raise InvalidInputError(
                f"--key-file: a key of {path} is too short or holds blanks; use 16 or more letters and digits, such as "
                "from: openssl rand -hex 24"
            )
    if len(set(keys)) < len(keys):
        raise InvalidInputError(f"--key-file: {path} holds a key twice; remove one.")
    return keys
