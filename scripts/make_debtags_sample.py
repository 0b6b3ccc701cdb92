"""Make the bundled data set ``debtags-sample`` from Debian's package index, read through apt.

Usage: python scripts/make_debtags_sample.py [--suite bookworm] [--packages 6500] [--out FOLDER]

It needs apt with a Debian source for the suite, and the network; tagwise itself needs neither. apt works in a
temporary folder of its own, so no root rights are needed and the machine's package lists stay as they are.
Long descriptions are not in the Packages index but in Translation-en, which many machines are set up to leave
out; the temporary folder asks for it.

What is taken: of each source package the one binary package with the most tags (siblings share most of their
description, and would leak from training into test), if it has at least MIN_TAGS tags and a long description
of at least MIN_DESCRIPTION characters. Of these a random part; then the tags that at least MIN_PACKAGES of
them have. The result depends only on the index, the seed and the arguments.

The result is an ordinary data set folder: texts with their tags, TF-IDF features fitted on the training texts, labels
and names. ``--matrices-only`` makes all but the texts again, from the texts that are there.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import hashlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from tagwise.data import read_jsonl, split_rows, write_npz
from tagwise.text.features import TextFeatures

MIN_TAGS = 4
MIN_DESCRIPTION = 150
MIN_PACKAGES = 5
TEST_FRACTION = 0.25
SEED = 0
MAX_BYTES = 3_200_000
APT_HELPER = "/usr/lib/apt/apt-helper"


@dataclass(frozen=True)
class Package:
    name: str
    source: str
    text: str
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Index:
    version: str
    architecture: str
    packages: bytes
    translations: bytes


def download_index(suite: str) -> Index:
    with tempfile.TemporaryDirectory() as folder:
        for part in ("lists/partial", "cache/archives/partial"):
            (Path(folder) / part).mkdir(parents=True)
        settings = {
            "Dir::State::Lists": f"{folder}/lists",
            "Dir::Cache": f"{folder}/cache",
            "Acquire::Languages": "en",
            # apt would otherwise drop to a user that may not write into the temporary folder.
            "APT::Sandbox::User": "",
        }
        options = [argument for key, value in settings.items() for argument in ("-o", f"{key}={value}")]
        subprocess.run(["apt-get", *options, "update"], check=True, stdout=subprocess.DEVNULL)
        wanted = [f"Codename: {suite}", "Origin: Debian", "Component: main"]
        shape = "$(VERSION)|$(ARCHITECTURE)|$(FILENAME)"

        def one(kind: str) -> tuple[str, str, bytes]:
            command = ["apt-get", *options, "indextargets", "--format", shape, f"Created-By: {kind}", *wanted]
            found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")[0]
            if not found:
                raise SystemExit(f"apt has no {kind} index of Debian {suite} main; add that source to apt.")
            version, architecture, path = found.split("|", 2)
            content = subprocess.run([APT_HELPER, "cat-file", path], check=True, capture_output=True).stdout
            return version, architecture, content

        version, architecture, packages = one("Packages")
        return Index(version, architecture, packages, one("Translations")[2])


def paragraphs(content: bytes) -> Iterator[dict[str, str]]:
    """Fields of each paragraph of a Debian control file; continuation lines keep their leading space."""
    for block in content.decode("utf-8").split("\n\n"):
        fields: dict[str, str] = {}
        key = ""
        for line in block.split("\n"):
            if line.startswith((" ", "\t")):
                fields[key] += "\n" + line
            elif line:
                key, _, value = line.partition(":")
                fields[key] = value.strip()
        if fields:
            yield fields


def plain_description(description: str) -> tuple[str, str]:
    """The short description, and the long one with a line a paragraph."""
    short, *lines = description.split("\n")
    parts = [[]]
    for line in (line.strip() for line in lines):
        if line == ".":
            parts.append([])
        else:
            parts[-1].append(line)
    return short, "\n".join(" ".join(" ".join(part).split()) for part in parts if part)


def tagged_packages(index: Index) -> list[Package]:
    descriptions = {fields["Description-md5"]: fields["Description-en"] for fields in paragraphs(index.translations)}
    best: dict[str, Package] = {}
    for fields in paragraphs(index.packages):
        if "Tag" not in fields:
            continue
        # "facet::TODO" asks a human to look again; it says nothing about the package.
        tags = {tag.strip() for tag in fields["Tag"].replace("\n", " ").split(",")}
        tags = {tag for tag in tags if "::" in tag and not tag.endswith("TODO")}
        name = fields["Package"]
        short, long = plain_description(descriptions.get(fields.get("Description-md5", ""), ""))
        if len(tags) < MIN_TAGS or len(long) < MIN_DESCRIPTION:
            continue
        source = fields.get("Source", name).split()[0]
        package = Package(name, source, f"{name}: {short}\n{long}", tuple(sorted(tags)))
        rival = best.get(source)
        if rival is None or (-len(package.tags), name) < (-len(rival.tags), rival.name):
            best[source] = package
    return sorted(best.values(), key=lambda package: package.name)


def choose(packages: list[Package], size: int) -> list[Package]:
    picked = np.random.default_rng(SEED).permutation(len(packages))[:size]
    chosen = [packages[position] for position in sorted(picked)]
    counts = collections.Counter(tag for package in chosen for tag in package.tags)
    kept = [
        Package(
            package.name,
            package.source,
            package.text,
            tuple(tag for tag in package.tags if counts[tag] >= MIN_PACKAGES),
        )
        for package in chosen
    ]
    return [package for package in kept if package.tags]


def split(packages: list[Package]) -> tuple[list[Package], list[Package]]:
    names = sorted({tag for package in packages for tag in package.tags})
    column = {name: position for position, name in enumerate(names)}
    rows = np.repeat(np.arange(len(packages)), [len(package.tags) for package in packages])
    columns = [column[tag] for package in packages for tag in package.tags]
    labels = sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(packages), len(names)))
    train, test = split_rows(labels, TEST_FRACTION, SEED, keep_labels=True)
    return [packages[row] for row in train], [packages[row] for row in test]


def compressed(packages: list[Package]) -> bytes:
    lines = (
        json.dumps({"text": package.text, "labels": package.tags}, ensure_ascii=False, separators=(",", ":"))
        for package in packages
    )
    return gzip.compress("".join(line + "\n" for line in lines).encode("utf-8"), compresslevel=9, mtime=0)


def source_note(index: Index, suite: str, train: list[Package], test: list[Package]) -> str:
    tags = collections.Counter(tag for package in train + test for tag in package.tags)
    per_package = sum(tags.values()) / (len(train) + len(test))
    digests = {
        "Packages": hashlib.sha256(index.packages).hexdigest(),
        "Translation-en": hashlib.sha256(index.translations).hexdigest(),
    }
    return f"""# debtags-sample

Generated by `scripts/make_debtags_sample.py`; do not edit.

- **What**: descriptions of {len(train) + len(test):,} Debian packages, and the debtags people gave them.
  {len(train):,} packages train and {len(test):,} test; {len(tags):,} tags, {per_package:.2f} a package.
- **Form**: a data set folder. `text.trn.jsonl.gz` and `text.tst.jsonl.gz` hold one JSON object per line: `text` is
  `name: short description`, then one line for each paragraph of the long description; `labels` are the tags.
  `X.*.npz` are the TF-IDF features of these texts (`TextFeatures()` fitted on the training texts, named in
  `features.txt`), `Y.*.npz` their tags (named in `labels.txt`).
- **Origin**: package index of Debian {index.version} ({suite}), component main, {index.architecture}, read
  through apt. SHA-256 of the uncompressed indices:
  - Packages: `{digests["Packages"]}`
  - Translation-en: `{digests["Translation-en"]}`
- **Choice**: of each source package the binary package with the most tags, if it has at least {MIN_TAGS} tags
  and a long description of at least {MIN_DESCRIPTION} characters; a random part of these (seed {SEED});
  tags that at least {MIN_PACKAGES} of the chosen packages have. `*::TODO` tags, which ask for review,
  are left out.
- **Split**: random ({TEST_FRACTION:.0%} test, seed {SEED}), every tag kept in training by
  `tagwise.data.split_rows`.
- **Licence**: component main holds only free software, and a package's description comes under the licence of
  its packaging, to be found in `/usr/share/doc/<package>/copyright`. Debtags are published by the Debian
  project as part of its package index.
"""


def write_matrices(folder: Path) -> None:
    """Features, labels and names of the texts in a folder; the columns of labels are the sorted training tags."""
    train = read_jsonl(folder / "text.trn.jsonl.gz", tags="labels")
    test = read_jsonl(folder / "text.tst.jsonl.gz", tags="labels")
    features = TextFeatures()
    X_train = features.fit_transform(train.texts)
    column = {name: position for position, name in enumerate(train.label_names)}
    columns = np.array([column[name] for name in test.label_names], dtype=test.Y.indices.dtype)
    Y_test = sp.csr_matrix(
        (test.Y.data, columns[test.Y.indices], test.Y.indptr), shape=(test.n_rows, len(train.label_names))
    )
    write_npz(folder / "X.trn.npz", folder / "Y.trn.npz", X_train, train.Y)
    write_npz(folder / "X.tst.npz", folder / "Y.tst.npz", features.transform(test.texts), Y_test)
    for what, names in (("features", features.feature_names), ("labels", train.label_names)):
        (folder / f"{what}.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the bundled debtags-sample from Debian's package index.")
    here = Path(__file__).resolve().parent.parent
    parser.add_argument("--suite", default="bookworm", help="Debian release by code name")
    parser.add_argument("--packages", type=int, default=6500, help="how many packages to take")
    parser.add_argument("--out", type=Path, default=here / "src" / "tagwise" / "data" / "sample")
    parser.add_argument("--matrices-only", action="store_true", help="keep the texts, make the rest again")
    arguments = parser.parse_args()

    if not arguments.matrices_only:
        index = download_index(arguments.suite)
        candidates = tagged_packages(index)
        train, test = split(choose(candidates, arguments.packages))
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "text.trn.jsonl.gz").write_bytes(compressed(train))
        (arguments.out / "text.tst.jsonl.gz").write_bytes(compressed(test))
        (arguments.out / "SOURCE.md").write_text(source_note(index, arguments.suite, train, test), encoding="utf-8")
        print(f"{len(candidates):,} candidates; {len(train):,} training, {len(test):,} test")
    write_matrices(arguments.out)
    size = sum(path.stat().st_size for path in arguments.out.iterdir())
    print(f"{size:,} bytes")
    if size > MAX_BYTES:
        raise SystemExit(f"The sample takes more than {MAX_BYTES:,} bytes; ask for fewer --packages.")


if __name__ == "__main__":
    main()
