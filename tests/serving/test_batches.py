"""Batches: whoever asks gets their own answer, whatever else is asked; and nobody waits for those who have gone."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tagwise.serving.batches import Batches, BusyError


def planted(key, texts):
    """Answers that tell which text they are for, and what was asked about it."""
    return [f"{key}/{text}" for text in texts]


def run(main, answer, **options):
    """Run a coroutine that gets batches."""

    async def started():
        await main(Batches(answer, threads, **options))

    with ThreadPoolExecutor(1) as threads:
        asyncio.run(started())


class Gate:
    """Answers as planted, but not before it is opened."""

    def __init__(self):
        self.opened, self.entered, self.sizes = threading.Event(), threading.Event(), []

    def __call__(self, key, texts):
        self.entered.set()
        self.opened.wait(60)
        self.sizes.append(len(texts))
        return planted(key, texts)

    async def ask(self, batches, *asked):
        """Tasks of questions, of which the first is being answered and all others wait."""
        first = asyncio.create_task(batches.ask(*asked[0]))
        await asyncio.to_thread(self.entered.wait, 60)
        others = [asyncio.create_task(batches.ask(*one)) for one in asked[1:]]
        await asyncio.sleep(0)
        return [first, *others]


def test_everybody_gets_their_own_answer_or_the_error_of_their_batch():
    chance, sizes = random.Random(0), []
    questions = [
        (
            chance.choice(["a", "b", "refused"]),
            [f"{number}.{text}" for text in range(chance.choice([0, 1, 1, 2, 7, 20]))],
        )
        for number in range(400)
    ]

    def answer(key, texts):
        if key == "refused":
            raise ValueError("refused")
        sizes.append(len(texts))
        return planted(key, texts)

    async def main(batches):
        async def one(key, texts):
            await asyncio.sleep(chance.random() * 0.01)
            if key != "refused":
                assert await batches.ask(key, texts) == planted(key, texts)
                return
            with pytest.raises(ValueError, match="refused"):
                await batches.ask(key, texts)

        await asyncio.gather(*(one(*given) for given in questions))

    run(main, answer, most=20)
    assert sum(sizes) == sum(len(texts) for key, texts in questions if key != "refused")
    assert max(sizes) <= 20
    assert len(sizes) < len(questions) / 2


def test_texts_that_come_while_others_are_answered_are_answered_together():
    gate = Gate()

    async def main(batches):
        asked = await gate.ask(batches, ("a", ["first"]), *(("a", [str(number)]) for number in range(10)))
        gate.opened.set()
        assert await asyncio.gather(*asked) == [["a/first"], *([f"a/{number}"] for number in range(10))]

    run(main, gate, most=8)
    assert gate.sizes == [1, 8, 2]


def test_beyond_the_limit_a_question_is_turned_away_and_later_ones_are_not():
    gate = Gate()

    async def main(batches):
        waiting = await gate.ask(batches, *[("a", list("xyz"))] * 3)
        with pytest.raises(BusyError, match="Too many texts wait"):
            await batches.ask("a", list("xy"))
        waiting.append(asyncio.create_task(batches.ask("a", ["z"])))
        await asyncio.sleep(0)
        gate.opened.set()
        await asyncio.gather(*waiting)
        assert await batches.ask("a", ["alone"] * 100) == ["a/alone"] * 100

    run(main, gate, most=4, most_waiting=10)
    assert gate.sizes == [3, 4, 3, 100]


def test_sizes_count():
    """Else 4,096 texts of 4 MiB could wait, and 256 of them be answered in one call."""
    gate = Gate()

    async def main(batches):
        waiting = await gate.ask(batches, *[("a", ["x"], 4)] * 5)
        with pytest.raises(BusyError):
            await batches.ask("a", ["x"], 4)
        gate.opened.set()
        await asyncio.gather(*waiting)

    run(main, gate, most=8, most_waiting=20)
    assert gate.sizes == [1, 2, 2]


def test_those_who_have_gone_take_nobodys_place_and_are_not_answered():
    gate = Gate()

    async def main(batches):
        first, *gone = await gate.ask(batches, *(("a", [text]) for text in "a123"))
        for one in gone:
            one.cancel()
        ends = await asyncio.gather(*gone, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ends)
        others = [asyncio.create_task(batches.ask("a", [text])) for text in "xyz"]
        await asyncio.sleep(0)
        gate.opened.set()
        assert await asyncio.gather(first, *others) == [[f"a/{text}"] for text in "axyz"]

    run(main, gate, most=4, most_waiting=4)
    assert gate.sizes == [1, 3]


def test_an_answer_that_comes_late_is_given_up_and_later_ones_come():
    gate = Gate()

    async def main(batches):
        late = [asyncio.create_task(batches.ask("a", [text])) for text in "abcd"]
        for found in await asyncio.gather(*late, return_exceptions=True):
            assert isinstance(found, asyncio.TimeoutError)
        batches._seconds = 60.0
        others = [asyncio.create_task(batches.ask("a", [text])) for text in "wxyz"]
        await asyncio.sleep(0)
        gate.opened.set()
        assert await asyncio.gather(*others) == [[f"a/{text}"] for text in "wxyz"]

    run(main, gate, most=4, most_waiting=4, seconds=0.01)
