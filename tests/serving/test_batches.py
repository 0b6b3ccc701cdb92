"""Batches: whoever asks gets their own answer, whatever else is asked; and nobody waits for those who have gone."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tagwise.serving.batches import LONG, Batches, BusyError
from tagwise.text.suggestion import Request


def planted(texts, question):
    """Answers that tell which text and which question they are for."""
    return [
        [f"{text}/{place}/{question.min_probability}/{question.explain}" for place in range(question.top)]
        for text in texts
    ]


def run(main):
    """Run a coroutine that gets an executor."""
    with ThreadPoolExecutor(1) as threads:
        asyncio.run(main(threads))


class Gate:
    """Answers as planted, but not before it is opened."""

    def __init__(self):
        self.opened, self.entered, self.sizes = threading.Event(), threading.Event(), []

    def __call__(self, texts, question):
        self.entered.set()
        self.opened.wait(60)
        self.sizes.append(len(texts))
        return planted(texts, question)


def test_everybody_gets_their_own_answer():
    chance = random.Random(0)
    questions = [
        (
            [f"{number}.{text}" for text in range(chance.choice([0, 1, 1, 2, 7, 20]))],
            Request(
                chance.randint(1, 9),
                min_probability=chance.choice([None, 0.1, 0.5]),
                explain=chance.choice([0, 0, 3]),
            ),
            chance.random() * 0.01,
        )
        for number in range(400)
    ]
    sizes = []

    def answer(texts, question):
        sizes.append(len(texts))
        return planted(texts, question)

    async def main(threads):
        batches = Batches(answer, threads, most_texts=20)

        async def one(texts, question, delay):
            await asyncio.sleep(delay)
            assert await batches.ask(texts, question) == planted(texts, question)

        await asyncio.gather(*(one(*given) for given in questions))

    run(main)
    assert sum(sizes) == sum(len(texts) for texts, _, _ in questions)
    assert max(sizes) <= 20
    assert len(sizes) < len(questions)


def test_texts_that_come_while_others_are_answered_are_answered_together():
    gate = Gate()

    async def main(threads):
        batches = Batches(gate, threads, most_texts=8)
        first = asyncio.create_task(batches.ask(["first"], Request()))
        await asyncio.to_thread(gate.entered.wait, 60)
        others = [asyncio.create_task(batches.ask([str(number)], Request(number))) for number in range(1, 11)]
        await asyncio.sleep(0)
        gate.opened.set()
        assert await first == planted(["first"], Request())
        assert [len((await one)[0]) for one in others] == list(range(1, 11))

    run(main)
    assert gate.sizes == [1, 8, 2]


def test_beyond_the_limit_a_question_is_turned_away_and_later_ones_are_not():
    gate = Gate()

    async def main(threads):
        batches = Batches(gate, threads, most_texts=4, most_waiting=10)
        waiting = [asyncio.create_task(batches.ask(["a", "b", "c"], Request())) for _ in range(3)]
        await asyncio.to_thread(gate.entered.wait, 60)
        with pytest.raises(BusyError):
            await batches.ask(["d", "e"], Request())
        last = asyncio.create_task(batches.ask(["f"], Request()))
        await asyncio.sleep(0)
        gate.opened.set()
        await asyncio.gather(*waiting, last)
        assert await batches.ask(list("abcdefghij"), Request()) == planted("abcdefghij", Request())

    run(main)


def test_long_texts_count_as_several():
    """Else 4,096 texts of 4 MiB could wait, and 256 of them be answered in one call."""
    gate, long = Gate(), "x" * (3 * LONG)

    async def main(threads):
        batches = Batches(gate, threads, most_texts=8, most_waiting=20)
        waiting = [asyncio.create_task(batches.ask([text], Request())) for text in ("a", *[long] * 4)]
        await asyncio.to_thread(gate.entered.wait, 60)
        with pytest.raises(BusyError):
            await batches.ask([long], Request())
        waiting.append(asyncio.create_task(batches.ask(["b"], Request())))
        await asyncio.sleep(0)
        gate.opened.set()
        await asyncio.gather(*waiting)
        assert gate.sizes == [1, 2, 2, 1] or gate.sizes == [2, 2, 2]
        await batches.ask([long * 10], Request())  # alone, whatever it counts as

    run(main)


def test_those_who_have_gone_take_nobodys_place_and_are_not_answered():
    gate = Gate()

    async def main(threads):
        batches = Batches(gate, threads, most_texts=4, most_waiting=4)
        first = asyncio.create_task(batches.ask(["first"], Request()))
        await asyncio.to_thread(gate.entered.wait, 60)
        gone = [asyncio.create_task(batches.ask([str(number)], Request())) for number in range(3)]
        await asyncio.sleep(0)
        for one in gone:
            one.cancel()
        assert all(
            isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*gone, return_exceptions=True)
        )
        others = [asyncio.create_task(batches.ask([text], Request())) for text in "xyz"]
        await asyncio.sleep(0)
        gate.opened.set()
        assert await asyncio.gather(first, *others) == [planted([text], Request()) for text in ("first", *"xyz")]

    run(main)
    assert gate.sizes == [1, 3]


def test_an_answer_that_comes_late_is_given_up_and_later_ones_come():
    gate = Gate()

    async def main(threads):
        batches = Batches(gate, threads, most_texts=4, most_waiting=4, seconds=0.01)
        late = [asyncio.create_task(batches.ask([text], Request())) for text in "abcd"]
        for found in await asyncio.gather(*late, return_exceptions=True):
            assert isinstance(found, asyncio.TimeoutError)
        batches._seconds = 60.0
        others = [asyncio.create_task(batches.ask([text], Request())) for text in "wxyz"]
        await asyncio.sleep(0)
        gate.opened.set()
        assert await asyncio.gather(*others) == [planted([text], Request()) for text in "wxyz"]

    run(main)


def test_an_error_reaches_those_of_its_batch_and_nobody_else():
    def refuses_thresholds(texts, question):
        if question.min_probability is not None:
            raise ValueError("no probabilities")
        return planted(texts, question)

    async def main(threads):
        batches = Batches(refuses_thresholds, threads)
        questions = [Request(5, min_probability=0.5 if number % 3 == 0 else None) for number in range(30)]
        answers = await asyncio.gather(
            *(batches.ask([str(number)], question) for number, question in enumerate(questions)), return_exceptions=True
        )
        for number, (question, answer) in enumerate(zip(questions, answers)):
            if question.min_probability is None:
                assert answer == planted([str(number)], question)
            else:
                assert isinstance(answer, ValueError)

    run(main)
