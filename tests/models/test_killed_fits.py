"""Fits that are killed (SIGKILL) at random moments and resume from their checkpoints to the very same bits.

One subprocess does it all: it forks the children that fit, which is fast (nothing is imported again) and safe (it has
no threads).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from systems import needs_fork

DRIVER = r"""
import hashlib, json, os, random, shutil, signal, sys, time, warnings
import numpy as np, scipy.sparse as sp
warnings.simplefilter("ignore")
from tagwise import LEML, REML, Cascade
from tagwise.baselines import WSABIE
from tagwise.store import Checkpoint

base, kills = sys.argv[1], int(sys.argv[2])
random.seed(5)
rng = np.random.default_rng(0)
X = sp.random(400, 60, 0.3, format="csr", random_state=1)
Y = sp.csr_matrix((X @ rng.standard_normal((60, 20)) > 0.9).astype(float))
MODELS = {
    "LEML": lambda: LEML(rank=10, max_iter=12, tol=0, early_stopping=True, patience=12),
    "REML": lambda: REML(rank=10, max_iter=12, tol=0, sparse_part="support", support=20),
    "WSABIE": lambda: WSABIE(rank=10, max_iter=12),
    "Cascade": lambda: Cascade(rank=10, max_iter=10, tol=0, support=20, shortlist=8),
}

def digest(model):
    token = hashlib.sha256(model.objective_.tobytes())
    for array in model.to_parts().tensors.values():
        parts = [array.data, array.indices, array.indptr] if sp.issparse(array) else [array]
        for part in parts:
            token.update(part.tobytes())
    return token.hexdigest()

def child(make, folder, answer, at_most=100):
    # Starts a fit in another process, and waits until its first round is over.
    begun, begin = os.pipe()
    pid = os.fork()
    if pid == 0:
        rounds = []

        def after_a_round(iteration, info):
            rounds.append(iteration)
            if len(rounds) == 1:
                os.write(begin, b"x")
            # As if a round took a while: kills shall hit rounds, writes and what lies between them. However slow the
            # killer is, it finds a fit to kill.
            time.sleep(0.004) if len(rounds) < at_most else signal.pause()

        model = make().fit(X, Y, checkpoint=Checkpoint(folder), callback=after_a_round)
        with open(answer, "w") as stream:
            json.dump([digest(model), len(model.history_)], stream)
        os._exit(0)
    os.close(begin)
    os.read(begun, 1)
    os.close(begun)
    return pid

result = {}
for name, make in MODELS.items():
    folder, answer = os.path.join(base, name), os.path.join(base, name + ".json")
    whole = make().fit(X, Y)
    killed = states = 0
    for _ in range(kills):
        pid = child(make, folder, answer, at_most=3)
        time.sleep(random.uniform(0, 0.02))
        os.kill(pid, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        states += Checkpoint(folder).exists()
    assert os.waitpid(child(make, folder, answer), 0)[1] == 0
    with open(answer) as stream:
        found, rounds = json.load(stream)
    result[name] = [killed, states, found == digest(whole), rounds == whole.n_iter_]
    Checkpoint(folder).discard()
    assert not os.path.exists(folder)
print(json.dumps(result))
"""


@needs_fork
def test_killed_at_random_moments_and_resumed(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path), "4"],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr
    results = json.loads(run.stdout)
    assert len(results) == 4
    for name, (killed, states, same_bits, same_rounds) in results.items():
        assert killed >= 1, name
        assert states >= 1, name
        assert same_bits, name
        assert same_rounds, name
