"""Slow requests do not block quick ones, queues have an end, and a client that is gone gets no work."""

import asyncio
import gc
import json
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from explorer.asking import OWN, SENTENCE, serving
from wording import wording

from caesura.explorer.pool import Pool, Stopped
from caesura.explorer.refused import Refused
from caesura.explorer.server import Explorer
from caesura.search.rounds import Check

WAIT = 30  # seconds, for what takes an instant


@pytest.fixture
def pool() -> Any:
    """One thread, room for one more."""
    pool = Pool("test", threads=1, waiting=1, seconds=60)
    yield pool
    pool.stop()
    pool.join(WAIT)


def until(done: threading.Event) -> Callable[[Check], str]:
    """Work that goes on until it is allowed to end, or stopped."""

    def work(check: Check) -> str:
        while not done.wait(0.002):
            check()
        return "done"

    return work


def test_a_full_queue_refuses_and_has_room_again(pool: Pool) -> None:
    async def run() -> None:
        done = threading.Event()
        first, second = (asyncio.ensure_future(pool.run(until(done))) for _ in range(2))
        await asyncio.sleep(0)
        with pytest.raises(Refused) as caught:
            await pool.run(until(done))
        assert caught.value.status == 503
        wording(caught.value)
        second.cancel()
        await asyncio.sleep(0)
        third = asyncio.ensure_future(pool.run(until(done)))
        await asyncio.sleep(0)
        done.set()
        assert await first == await third == "done"

    asyncio.run(run())


def test_requests_that_are_given_up_leave_the_queue(pool: Pool) -> None:
    """Also while every thread is busy: what they would have computed is not kept."""

    async def run() -> None:
        done, kept = threading.Event(), weakref.WeakSet()
        first = asyncio.ensure_future(pool.run(until(done)))
        for _ in range(1000):
            work = until(done)
            kept.add(work)
            task = asyncio.ensure_future(pool.run(work))
            del work
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        del task
        await asyncio.sleep(0)
        gc.collect()
        assert not kept
        assert not first.done()
        done.set()
        assert await first == "done"

    asyncio.run(run())


def test_who_has_nothing_running_comes_first(pool: Pool) -> None:
    order: list[str] = []

    async def run() -> None:
        many = Pool("many", threads=2, waiting=4, seconds=60)
        first, second = threading.Event(), threading.Event()

        def noted(owner: str) -> Callable[[Check], None]:
            return lambda _: order.append(owner)

        jobs = [(until(first), "a"), (until(second), "a"), *((noted(owner), owner) for owner in "aabc")]
        busy, *others = [asyncio.ensure_future(many.run(work, owner)) for work, owner in jobs]
        await asyncio.sleep(0)  # all wait or run
        second.set()
        await asyncio.gather(*others)
        first.set()
        await busy
        many.stop()
        many.join(WAIT)

    asyncio.run(run())
    assert order == ["b", "c", "a", "a"]


def test_cancelled_work_ends_at_its_next_check(pool: Pool) -> None:
    started, ended = threading.Event(), threading.Event()

    def work(check: Check) -> None:
        started.set()
        try:
            until(threading.Event())(check)
        except Stopped:
            ended.set()
            raise

    async def run() -> None:
        task = asyncio.ensure_future(pool.run(work))
        assert await asyncio.to_thread(started.wait, WAIT)
        task.cancel()
        assert await asyncio.to_thread(ended.wait, WAIT)

    asyncio.run(run())


def test_work_that_takes_too_long_is_stopped() -> None:
    pool = Pool("test", threads=1, waiting=1, seconds=0.02)
    with pytest.raises(Refused) as caught:
        asyncio.run(pool.run(until(threading.Event())))
    wording(caught.value)
    pool.stop()
    with pytest.raises(Refused) as caught:
        asyncio.run(pool.run(until(threading.Event())))
    wording(caught.value)
    pool.join(WAIT)


def test_an_error_is_that_of_its_request(pool: Pool) -> None:
    def wrong(check: Check) -> None:
        raise ValueError("this one")

    with pytest.raises(ValueError, match="this one"):
        asyncio.run(pool.run(wrong))
    assert asyncio.run(pool.run(lambda check: 7)) == 7


async def exchange(explorer: Explorer, path: str, body: dict[str, Any], leave: asyncio.Event) -> list[Any]:
    """One request whose client goes away when it is told to; what it was sent until then."""
    sent: list[Any] = []
    parts = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Any:
        if parts:
            return parts.pop()
        await leave.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": headers, "client": ("127.0.0.1", 1), "scheme": "http", "http_version": "1.1"}
    await explorer.app(scope, receive, send)
    return sent


def test_a_client_that_leaves_stops_the_search_between_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(OWN) as explorer:
        decoder = type(explorer.shelf.slot(OWN).current().model.decoder)
        steps, started, left, step = 0, threading.Event(), threading.Event(), decoder.step

        def held(self: Any, *arguments: Any) -> Any:
            nonlocal steps
            steps += 1
            started.set()
            assert left.wait(WAIT)
            return step(self, *arguments)

        monkeypatch.setattr(decoder, "step", held)

        async def run() -> list[Any]:
            leave = asyncio.Event()
            body = {"model": OWN, "text": SENTENCE, "beam": 1}
            request = asyncio.ensure_future(exchange(explorer, "/explain", body, leave))
            assert await asyncio.to_thread(started.wait, WAIT)
            leave.set()
            return await asyncio.wait_for(request, WAIT)

        sent = asyncio.run(run())
        left.set()
        assert sent[0]["status"] == 499
        explorer.stop()
        explorer.join(WAIT)
        assert steps == 1  # of more than 30 symbols


def test_long_requests_leave_the_quick_ones_alone(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    done, started = threading.Event(), threading.Semaphore(0)

    def slow(*_: Any, **__: Any) -> Any:
        started.release()
        assert done.wait(WAIT)
        raise Refused(422, "slow")

    monkeypatch.setattr("caesura.explorer.answers.flips", slow)
    with serving(folders["cif"], limits={"waiting_long": 1}) as explorer:

        async def run() -> list[int]:
            stay, body = asyncio.Event(), {"model": "cif", "text": "abcd"}
            flips = [asyncio.ensure_future(exchange(explorer, "/flips", body, stay)) for _ in range(4)]
            for _ in range(2):  # one does not hold up the next
                assert await asyncio.to_thread(started.acquire, timeout=WAIT)
            quick = await asyncio.wait_for(exchange(explorer, "/segment", body, stay), WAIT)
            done.set()
            return [quick[0]["status"], *[sent[0]["status"] for sent in await asyncio.gather(*flips)]]

        quick, *long = asyncio.run(run())
    assert quick == 200
    assert long == [422, 422, 422, 503]


def test_two_rates_at_once_do_not_meet(folders: dict[str, Path]) -> None:
    with serving(OWN, threads=3) as explorer:

        async def run() -> list[int]:
            stay = asyncio.Event()
            bodies = [{"model": OWN, "text": SENTENCE, "rate": rate} for rate in (1.5, 3.0, 9.0) * 4]
            answers = await asyncio.gather(*(exchange(explorer, "/segment", body, stay) for body in bodies))
            return [len(json.loads(answer[1]["body"])["pieces"]) for answer in answers]

        assert asyncio.run(run()) == [30, 15, 5] * 4
