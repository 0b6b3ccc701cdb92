"""Annif itself as the client of a running tagwise: its ``http`` backend, its commands, its description of the API."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from serving import ServerProcess

from tagwise.serving.annif import uri_of

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from annif import Annif
from peers.environments import InstallationError

pytestmark = pytest.mark.slow

KEY = "0123456789abcdef0123456789abcdef"
TEXT = "a fast web server with plugins, written in C"

# Runs in Annif's environment: what tagwise answers must be what Annif's own description of the API says.
VALIDATION = """
import json, os, sys
import annif, requests, yaml
from connexion.json_schema import Draft4ResponseValidator, resolve_refs

with open(os.path.join(os.path.dirname(annif.__file__), "openapi", "annif.yaml")) as stream:
    paths = resolve_refs(yaml.safe_load(stream))["paths"]
base, project = sys.argv[1:]
text = {"text": "a fast web server"}
subject = {"uri": "urn:tagwise:web::server", "label": "web::server"}
many = {"documents": [{**text, "document_id": "1"}, text]}
statuses = []
for method, path, options in [
    ("get", "/", {}),
    ("get", "/vocabs", {}),
    ("get", "/projects", {}),
    ("get", "/projects/{project_id}", {}),
    ("post", "/projects/{project_id}/suggest", {"data": {**text, "limit": 3, "threshold": 0.01, "language": "en"}}),
    ("post", "/projects/{project_id}/suggest", {"data": {**text, "limit": -1}}),
    ("post", "/projects/{project_id}/suggest-batch", {"json": many, "params": {"limit": 3}}),
    ("post", "/projects/{project_id}/suggest-batch", {"json": {"documents": [text] * 33}}),
    ("post", "/projects/{project_id}/learn", {"json": [{**text, "subjects": [subject]}]}),
]:
    for name in (project, "nobody") if "{" in path else (project,):
        answer = requests.request(method, base + path.format(project_id=name), **options)
        statuses.append(answer.status_code)
        if answer.status_code == 204:
            assert not answer.content
            continue
        described = paths[path][method]["responses"][str(answer.status_code)]["content"]
        kind = answer.headers["content-type"]
        Draft4ResponseValidator(described[kind]["schema"]).validate(answer.json())
print(json.dumps(statuses))
"""


@pytest.fixture(scope="module")
def annif(tmp_path_factory):
    """Annif from PyPI, in an environment that is kept between runs."""
    try:
        return Annif(tmp_path_factory.mktemp("annif"))
    except InstallationError as error:
        pytest.skip(f"Annif cannot be installed here: {error}")


@pytest.fixture(scope="module")
def running(annif, tagger, tmp_path_factory):
    """The address of a server that wants a key, as the password of its address, and the file of its feedback."""
    folder = tmp_path_factory.mktemp("served")
    tagger.save(folder / "packages")
    (folder / "keys.txt").write_text(KEY)
    feedback, keys = folder / "feedback.jsonl", folder / "keys.txt"
    with ServerProcess(
        folder / "packages", "--key-file", keys, "--feedback", feedback, log=folder / "log.txt"
    ) as server:
        base = server.url.replace("://", f"://annif:{KEY}@") + "/v1"
        annif.set_up(tagger.tags_, {"remote": {"backend": "http", "endpoint": f"{base}/projects/packages/suggest"}})
        yield base, feedback


def test_annif_shows_the_project_as_trained(annif, running):
    shown = annif.run("show-project", "remote")
    assert "True" in next(line for line in shown.splitlines() if line.startswith("Trained"))
    assert "None" not in next(line for line in shown.splitlines() if line.startswith("Modification"))


def test_annif_suggests_what_tagwise_suggests(annif, running, tagger):
    lines = annif.run("suggest", "remote", "--limit", 5, given=TEXT).splitlines()
    (expected,) = tagger.suggest([TEXT], top=5)
    found = [line.split("\t") for line in lines]
    assert [one[0] for one in found] == [f"<{uri_of(one.tag)}>" for one in expected]
    assert [one[1] for one in found] == [one.tag for one in expected]
    assert [float(one[2]) for one in found] == pytest.approx([one.probability for one in expected], abs=1e-4)


def test_answers_are_those_that_annif_describes(annif, running):
    base, feedback = running
    done = subprocess.run(
        [annif.python, "-c", VALIDATION, base, "packages"],
        env=annif.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    both = [[200, 404], [200, 404], [400, 400], [200, 404], [400, 400], [204, 404]]
    assert json.loads(done.stdout.splitlines()[-1]) == [200, 200, 200, *(status for pair in both for status in pair)]
    (record,) = map(json.loads, feedback.read_text().splitlines())
    assert (record["tagger"], record["text"], record["accepted"]) == ("packages", "a fast web server", ["web::server"])
