"""The installed command as a person runs it, and small files to run it on."""

import json
import random
import subprocess
import sys

WORDS = {
    "pets": ["cat", "dog", "tail", "fur"],
    "drinks": ["wine", "beer", "glass", "bar"],
    "food": ["bread", "cheese", "plate", "oven"],
    "garden": ["tree", "apple", "prune", "soil"],
}


def run(*arguments, cwd=None, stdin=None, **options):
    """``tagwise`` with these arguments; standard output and error as text."""
    return subprocess.run(
        [sys.executable, "-m", "tagwise", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        input=stdin,
        timeout=600,
        cwd=cwd,
        **options,
    )


def failed(result, code, *words):
    """The command ended with this code and one sentence that holds these words."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr, result.stderr
    for word in words:
        assert word in result.stderr, result.stderr
    return True


def some_rows(n_rows=80, seed=0):
    """Rows whose texts give their tags away."""
    chance = random.Random(seed)
    rows = []
    for number in range(n_rows):
        tags = chance.sample(sorted(WORDS), chance.choice([1, 1, 2]))
        text = " ".join(chance.choice(WORDS[tag]) for tag in tags for _ in range(5))
        rows.append({"id": f"r{number}", "text": text, "labels": tags, "year": 2000 + number})
    return rows


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
