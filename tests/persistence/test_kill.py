"""A saving process is killed (SIGKILL) at random moments: the old or the new model is left, never a mixture.

One subprocess does it all: it forks the children that save, which is fast (nothing is imported again) and
safe (it has no threads).
"""

from __future__ import annotations

import json
import subprocess
import sys

DRIVER = r"""
import json, os, random, shutil, signal, sys, time
import numpy as np, scipy.sparse as sp
from tagwise.exceptions import ModelFormatError
from tagwise.persistence import ModelRecord, read_model, write_model

base, kills, fresh_kills = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(20)

def record(seed):
    rng = np.random.default_rng(seed)
    sparse = sp.csr_matrix(rng.random((50, 50)) * (rng.random((50, 50)) < 0.1))
    tensors = {"W": rng.random((300, 100)), "S": sparse}
    names = [f"label {seed} {i}" for i in range(200)]
    return ModelRecord("LEML", {"rank": seed}, tensors, {"n_iter_": seed}, names)

MODELS = {"A": record(1), "B": record(2)}

def which(loaded):
    for name, model in MODELS.items():
        s, t = model.tensors["S"], loaded.tensors["S"]
        if (loaded.parameters == model.parameters and loaded.values == model.values
                and loaded.label_names == model.label_names
                and loaded.tensors["W"].tobytes() == model.tensors["W"].tobytes()
                and s.data.tobytes() == t.data.tobytes() and s.indices.tobytes() == t.indices.tobytes()
                and s.indptr.tobytes() == t.indptr.tobytes()):
            return name
    raise AssertionError("a mixture was loaded")

def kill_at_random(path, first):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write_end, b"x")
        names = ["A", "B"] if first == "A" else ["B", "A"]
        while True:
            for name in names:
                write_model(path, MODELS[name])
    os.read(read_end, 1)
    time.sleep(random.uniform(0, 2.5 * duration))
    os.kill(pid, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1]), "the child died of something else"
    os.close(read_end), os.close(write_end)

path = os.path.join(base, "m")
start = time.perf_counter()
for name in "ABABA":
    write_model(path, MODELS[name])
duration = (time.perf_counter() - start) / 5

result = {"A": 0, "B": 0, "none": 0, "cut_off": 0}
for number in range(kills):
    kill_at_random(path, "AB"[number % 2])
    result["cut_off"] += len(os.listdir(path)) != 2
    result[which(read_model(path))] += 1
write_model(path, MODELS["A"])
assert which(read_model(path)) == "A" and len(os.listdir(path)) == 2

for number in range(fresh_kills):
    path = os.path.join(base, f"fresh{number}")
    kill_at_random(path, "A")
    try:
        result[which(read_model(path))] += 1
    except ModelFormatError:
        result["none"] += 1
        assert not os.path.exists(os.path.join(path, "manifest.json"))
    write_model(path, MODELS["B"])
    assert which(read_model(path)) == "B" and len(os.listdir(path)) == 2
    shutil.rmtree(path)
print(json.dumps(result))
"""


def test_kill_at_random_moments(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path), "80", "40"], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["A"] + result["B"] + result["none"] == 120
    # The kills must have fallen on both sides of the switch and within saves, or nothing was tested.
    assert result["A"] > 5
    assert result["B"] > 5
    assert result["cut_off"] > 5
