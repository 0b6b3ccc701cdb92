"""Annif, as anybody would run it: in an environment of its own, with a vocabulary, projects and its own server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from peers.environments import default_folder, python_with

from tagwise.serving.annif import uri_of

REQUIREMENTS = ["annif[omikuji]>=1.4"]
LONGEST_COMMAND = 3600
LANGUAGE = "en"

# Annif fetches these parameters of sentences when it splits a text for the first time.
_SENTENCES = Path("tokenizers/punkt_tab/english")
# Where it cannot, NLTK learns them from the texts themselves.
_LEARN_SENTENCES = """
import sys
from nltk.tokenize.punkt import PunktTrainer, save_punkt_params
trainer = PunktTrainer()
trainer.train("\\n".join(line.split("\\t")[0] for line in open(sys.argv[1], encoding="utf-8")), finalize=True)
save_punkt_params(trainer.get_params(), sys.argv[2])
"""


class Annif:
    """A folder with Annif's projects and what they learn."""

    def __init__(self, folder: Path, environments: Path | None = None) -> None:
        self.folder = folder
        self.python = python_with(REQUIREMENTS, (environments or default_folder()) / "annif")
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that its processes get; none of tagwise's."""
        mine = {"ANNIF_DATADIR": str(self.folder / "data"), "NLTK_DATA": str(self.folder / "nltk")}
        return {**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, **mine}

    def run(self, *arguments: object, given: str = "") -> str:
        """What a command writes."""
        done = subprocess.run(
            [str(self.python.with_name("annif")), *map(str, arguments)],
            input=given,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_COMMAND,
        )
        if done.returncode:
            raise RuntimeError(f"annif {arguments[0]}: {(done.stderr or done.stdout)[-2000:]}")
        return done.stdout

    def server(self, port: int, workers: int) -> list[str]:
        """The command of its server, as its documentation has it for production, with a number of processes."""
        more = ["--port", str(port), "--workers", str(workers), "--log-level", "warning"]
        return [str(self.python), "-m", "uvicorn", "annif:create_app", "--factory", *more]

    def version(self, distribution: str) -> str:
        """Of a package in its environment."""
        code = f"from importlib.metadata import version; print(version({distribution!r}))"
        return subprocess.run([self.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    def set_up(self, tags: Iterable[str], projects: Mapping[str, Mapping[str, str]]) -> None:
        """Write projects that share a vocabulary of tags, under the addresses that tagwise gives them."""
        sections = []
        for name, settings in projects.items():
            values = {"name": name, "language": LANGUAGE, "vocab": "tags", **settings}
            sections.append("\n".join([f"[{name}]", *(f"{key}={value}" for key, value in values.items())]))
        (self.folder / "projects.cfg").write_text("\n\n".join(sections) + "\n", encoding="utf-8")
        vocabulary = self.folder / "vocabulary.tsv"
        vocabulary.write_text("".join(f"<{uri_of(tag)}>\t{tag}\n" for tag in tags), encoding="utf-8")
        self.run("load-vocab", "--force", "-L", LANGUAGE, "tags", vocabulary)

    def corpus(self, name: str, texts: Iterable[str], tags: Iterable[Sequence[str]]) -> Path:
        """A file of texts with their subjects."""
        path = self.folder / name
        with open(path, "w", encoding="utf-8") as stream:
            for text, given in zip(texts, tags):
                subjects = " ".join(f"<{uri_of(tag)}>" for tag in given)
                stream.write(f"{' '.join(text.split())}\t{subjects}\n")
        return path

    def learn_sentences(self, corpus: Path) -> bool:
        """Make the parameters of sentences from a corpus, unless they can be fetched; returns whether it did."""
        folder = self.folder / "nltk"
        fetch = [str(self.python), "-m", "nltk.downloader", "-q", "-e", "-d", str(folder), "punkt_tab"]
        fetched = subprocess.run(fetch, env=self.environment, capture_output=True, check=False, timeout=300)
        if fetched.returncode == 0 and (folder / _SENTENCES).is_dir():
            return False
        (folder / _SENTENCES).mkdir(parents=True, exist_ok=True)
        learn = [str(self.python), "-c", _LEARN_SENTENCES, str(corpus), str(folder / _SENTENCES)]
        subprocess.run(learn, check=True, timeout=LONGEST_COMMAND)
        return True
