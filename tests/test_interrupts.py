"""Ctrl-C: never inside compiled code, always soon, and the model stays as it was."""

import contextlib
import inspect
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from contract_models import FIRST_MAKERS
from systems import needs_signals

from tagwise import LEML, Tagger
from tagwise.interrupts import deferred_interrupts, interruptible, raise_if_interrupted
from tagwise.kernels.compiled import compiled
from tagwise.parallel import even_chunks, run_chunks
from tests.fuzz.interrupts import digest

pytestmark = pytest.mark.skipif(not hasattr(signal, "raise_signal"), reason="this system has no signals")

REPOSITORY = Path(__file__).parents[1]
RNG = np.random.default_rng(0)
X = sp.random(90, 20, 0.3, format="csr", random_state=1)
Y = sp.csr_matrix((X @ RNG.standard_normal((20, 8)) > 0.5).astype(np.float64))


def interrupt(*_):
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def handler():
    """Whatever a test does, the handler afterwards is the one before."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    found = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert found is signal.default_int_handler, "the handler must be what it was before the call"


# ---------------------------------------------------------------------- kernels


@compiled()
def _wait_and_return_arrays(flag, other):
    while flag[0] == 0:
        other[0] += 1  # the compiler must not read the flag only once
    return np.zeros(2), np.ones(3)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_an_interrupt_inside_a_kernel_that_returns_arrays_is_no_system_error(n_threads):
    """numba makes a SystemError of an interrupt that comes while it boxes a tuple of arrays."""
    open_flag = np.ones(1, dtype=np.int64)
    _wait_and_return_arrays(open_flag, open_flag.copy())  # compiled
    flag, turns = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)

    def strike():
        while turns[0] == 0:  # the kernel is running
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
        flag[0] = 1

    called = []

    def chunk(start, stop):
        called.append(start)
        if start == 0:
            threading.Thread(target=strike).start()
        return _wait_and_return_arrays(flag, turns)

    with pytest.raises(KeyboardInterrupt):
        run_chunks(chunk, even_chunks(6, 1), n_threads)
    assert n_threads > 1 or called == [0], "no chunk begins after the interrupt"


# ---------------------------------------------------------------------- the rules


def test_an_interrupt_waits_for_a_safe_point_but_not_in_users_code():
    reached = []

    @deferred_interrupts()
    def call(within):
        with within():
            interrupt()
            reached.append("after the interrupt")
        raise_if_interrupted()
        reached.append("after the safe point")

    for within, expected in ((contextlib.nullcontext, ["after the interrupt"]), (interruptible, [])):
        reached.clear()
        with pytest.raises(KeyboardInterrupt):
            call(within)
        assert reached == expected


def test_an_error_does_not_hide_an_interrupt():
    """Ctrl-C reaches worker processes too: what is found first may be that they have gone."""

    @deferred_interrupts()
    def call():
        interrupt()
        raise RuntimeError("a worker has gone")

    with pytest.raises(KeyboardInterrupt) as caught:
        call()
    assert isinstance(caught.value.__context__, RuntimeError)


def test_a_handler_of_the_users_own_decides_at_the_safe_point():
    calls = []
    signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    with deferred_interrupts():
        interrupt()
        assert not calls
        raise_if_interrupted()
        assert calls == [signal.SIGINT]
        raise_if_interrupted()
    assert calls == [signal.SIGINT], "once per interrupt"
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("action", [signal.SIG_IGN, signal.SIG_DFL])
def test_no_handler_stays_no_handler(action):
    signal.signal(signal.SIGINT, action)
    with deferred_interrupts():
        assert signal.getsignal(signal.SIGINT) is action
    assert signal.getsignal(signal.SIGINT) is action
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_handler_that_is_set_within_users_code_stays():
    calls = []
    with deferred_interrupts():
        with interruptible():
            signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
        interrupt()
    assert calls == [signal.SIGINT]
    with deferred_interrupts(), interruptible():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_another_thread_has_no_part_in_an_interrupt():
    found = []

    def other():
        with deferred_interrupts():
            raise_if_interrupted()
            found.append(run_chunks(lambda start, stop: start, even_chunks(3, 1), 2))

    @deferred_interrupts()
    def call():
        interrupt()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(30)

    with pytest.raises(KeyboardInterrupt):
        call()
    assert found == [[0, 1, 2]]


# ---------------------------------------------------------------------- fits and predictions


def interrupted_at(call, event):
    """Run a call with an interrupt at a numbered event of its Python code; returns how many events there were."""
    seen = 0

    def profile(frame, what, argument):
        nonlocal seen
        # Not in the test itself, and not where Python ignores errors: a generator that is given up is called too.
        code = frame.f_code
        if what == "call" and code.co_filename != __file__ and not code.co_flags & inspect.CO_GENERATOR:
            seen += 1
            if seen == event:
                sys.setprofile(None)
                interrupt()

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def interrupt_on_threads(call, event, undo=lambda: None):
    """Interrupt a call at an event that was counted in another run of it.

    How much of the work falls to this thread differs from run to run. A call that ended before the event is undone, and
    interrupted earlier.
    """
    while True:
        try:
            seen = interrupted_at(call, event)
        except KeyboardInterrupt:
            return
        assert seen < event, "an interrupt was lost"
        undo()
        event = max(1, seen // 2)


@pytest.mark.parametrize("make", FIRST_MAKERS, ids=lambda make: make.name)
def test_an_interrupted_fit_leaves_the_model_as_it_was_and_the_next_one_has_the_same_bits(make):
    expected = digest(make(n_jobs=2).fit(X, Y))
    model = make(n_jobs=2).fit(X[:60], Y[:60])
    before = dict(model.__dict__)
    state = digest(model)
    count = interrupted_at(lambda: make(n_jobs=2).fit(X, Y), event=-1)
    rng = random.Random(0)
    for event in [1, 2, count // 2, *(rng.randint(1, count - 20) for _ in range(3))]:
        interrupt_on_threads(lambda: model.fit(X, Y), event, undo=lambda: vars(model).update(before))
        assert digest(model) == state
        assert all(model.__dict__[name] is value for name, value in before.items())
        assert model.__dict__.keys() == before.keys()
    assert digest(model.fit(X, Y)) == expected


@pytest.mark.parametrize("make", FIRST_MAKERS, ids=lambda make: make.name)
def test_an_interrupted_prediction_is_repeated_with_the_same_bits(make):
    model = make(n_jobs=2).fit(X, Y)

    def ask():
        return model.predict_topk(X, k=3), model.predict_topk(X[0], k=2), model.predict(X), model.decision_function(X)

    expected, state = digest(ask()), digest(model)
    count = interrupted_at(ask, event=-1)
    for event in (1, count // 3, 2 * count // 3):
        interrupt_on_threads(ask, event)
        assert digest(model) == state
    assert digest(ask()) == expected


@pytest.mark.filterwarnings("ignore::tagwise.exceptions.TagwiseWarning")
def test_an_interrupted_tagger_is_as_it_was():
    texts = ["a cat and a dog", "a dog barks", "red wine and cheese", "white wine"] * 5
    tags = [["pets"], ["pets"], ["food", "drinks"], ["drinks"]] * 5
    tagger = Tagger("leml").fit(texts[:10], tags[:10])
    state, kept = digest(tagger), dict(tagger.__dict__)
    count = interrupted_at(lambda: Tagger("leml").fit(texts, tags), event=-1)
    for event in np.linspace(1, count - 20, 25).astype(int):
        with pytest.raises(KeyboardInterrupt):
            interrupted_at(lambda: tagger.fit(texts, tags), event)
        assert digest(tagger) == state
        assert all(tagger.__dict__[name] is value for name, value in kept.items())


def test_a_callback_is_interrupted_at_once():
    reached = []

    def callback(iteration, info):
        interrupt()
        reached.append(iteration)

    with pytest.raises(KeyboardInterrupt):
        LEML(rank=2, max_iter=3).fit(X, Y, callback=callback)
    assert not reached


# ---------------------------------------------------------------------- processes of their own


_FITS = {
    "FastXML": "from tagwise.baselines import FastXML\nmodel = FastXML(n_trees=200, n_jobs=2)",
    "Cascade": "from tagwise import Cascade\n"
    "model = Cascade(rank=20, max_iter=500, tol=0.0, validation_fraction=0.0, n_jobs=2)",
    "REML-parts": "from tagwise import REML\n"
    "model = REML(rank=20, partitions=4, max_iter=500, tol=0.0, sparse_part='support', n_jobs=2)",
}

_SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
from tagwise.data import load_dataset
{make}
sample = load_dataset("debtags-sample")
started = []
def begin(*_):
    if not started:
        started.append(True)
        print("started", flush=True)
if {at_once}:
    begin()
try:
    model.fit(sample.X_train, sample.Y_train, callback=begin)
except BaseException as error:
    print(type(error).__name__, sorted(name for name in vars(model) if name.endswith("_")), flush=True)
else:
    print("finished", flush=True)
"""


@needs_signals
@pytest.mark.parametrize("name", list(_FITS))
def test_a_long_fit_ends_with_keyboard_interrupt(name):
    code = _SCRIPT.format(make=_FITS[name], at_once=name.startswith("REML"))
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert child.stdout.readline() == "started\n", child.stderr.read()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.7)
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        out, err = child.communicate(timeout=120)
    finally:
        child.kill()
    assert out == "KeyboardInterrupt []\n", err
    assert child.returncode == 0, err
