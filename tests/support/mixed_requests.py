"""Clients of a service that do a little of everything for as long as they are let, and check what they get."""

from __future__ import annotations

import base64
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO

import httpx

from vlmsearch.demo.scenes import make_scene

PLACE = "/api/v1/indexes/default"
_IDS = 300
_PICTURES = 40
_WORDS = ("dog", "snow", "car", "red star", "two cats", "blue circle", "sofa", "2021")


class MixedClient:
    """One client, over connections that it keeps. It holds at most 300 documents in the index.

    Args:
        url: The service.
        number: Names its documents, and seeds its choices.
    """

    def __init__(self, url: str, number: int) -> None:
        self._http = httpx.Client(base_url=url, timeout=60)
        self._number = number
        self._chance = random.Random(number)
        self._pictures = [_png(1000 * number + each) for each in range(_PICTURES)]
        self._actions: dict[Callable[[], None], int] = {
            self._search: 30,
            self._search_by_image: 8,
            self._embed: 8,
            self._add_texts: 10,
            self._add_image: 8,
            self._change: 4,
            self._delete: 6,
            self._look: 10,
            self._ask: 4,
            self._leave_stream: 6,
            self._leave_search: 6,
            self._job: 5,
            self._cancelled_job: 3,
            self._mistake: 6,
            self._watch: 3,
        }
        self.done: Counter[str] = Counter()

    def work(self, until: float, pause: float) -> Counter[str]:
        """Do one thing after the other until a time of `time.monotonic`; return how often each was done."""
        with self._http:
            while time.monotonic() < until:
                (action,) = self._chance.choices(list(self._actions), list(self._actions.values()))
                action()
                self.done[action.__name__.strip("_")] += 1
                time.sleep(pause)
        return self.done

    def _send(self, path: str, body: object, *, status: int = 200) -> httpx.Response:
        answer = self._http.post(path, json=body)
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        return answer

    def _get(self, path: str, **params: object) -> httpx.Response:
        answer = self._http.get(path, params=params)  # type: ignore[arg-type]
        assert answer.status_code in (200, 404), (path, answer.status_code, answer.text)
        return answer

    def _text(self) -> str:
        return f"{self._chance.choice(_WORDS)} and {self._chance.choice(_WORDS)} of {self._chance.randrange(10_000)}"

    def _id(self) -> str:
        return f"{self._number}/{self._chance.randrange(_IDS):03}"

    def _picture_id(self) -> tuple[str, bytes]:
        which = self._chance.randrange(_PICTURES)
        return f"{self._number}/p{which:02}.png", self._pictures[which]

    def _search(self) -> None:
        options = self._chance.choice(({}, {"count": True, "facets": ["n"]}, {"where": {"n": 3}}, {"sort": "-n"}))
        assert "matches" in self._send(f"{PLACE}/search", {"text": self._text(), "limit": 10, **options}).json()

    def _search_by_image(self) -> None:
        _, data = self._picture_id()
        assert "matches" in self._send(f"{PLACE}/search", {"image": base64.b64encode(data).decode()}).json()

    def _embed(self) -> None:
        model = self._get("/v1/models").json()["data"][0]["id"]
        texts = [self._text() for _ in range(self._chance.randrange(1, 9))]
        assert len(self._send("/v1/embeddings", {"model": model, "input": texts}).json()["data"]) == len(texts)

    def _add_texts(self) -> None:
        documents = [
            {"id": self._id(), "text": self._text(), "metadata": {"n": self._chance.randrange(9)}} for _ in range(4)
        ]
        self._send(f"{PLACE}/documents", {"documents": list({each["id"]: each for each in documents}.values())})

    def _add_image(self) -> None:
        id, data = self._picture_id()
        document = {"id": id, "image": base64.b64encode(data).decode(), "text": self._text()}
        assert self._send(f"{PLACE}/documents", {"documents": [document]}).json()["rejects"] == []

    def _change(self) -> None:
        self._send(f"{PLACE}/documents/metadata", {"ids": [self._id()], "set": {"seen": True}})

    def _delete(self) -> None:
        self._send(f"{PLACE}/documents/delete", {"ids": [self._id(), self._id(), self._picture_id()[0]]})

    def _look(self) -> None:
        id, _ = self._picture_id()
        self._get(f"{PLACE}/image", id=id)
        self._get(f"{PLACE}/thumbnail", id=id, size=64)
        self._get(f"{PLACE}/documents", limit=20)

    def _ask(self) -> None:
        assert self._send(f"{PLACE}/ask", {"question": self._text()}).json()["text"]

    def _leave_stream(self) -> None:
        """Ask, read the first events and go."""
        form = {"question": self._text(), "stream": True}
        with self._http.stream("POST", f"{PLACE}/ask", json=form) as answer:
            assert answer.status_code == 200
            lines: Iterator[str] = answer.iter_lines()
            for _ in range(self._chance.randrange(1, 8)):
                next(lines, None)

    def _leave_search(self) -> None:
        """Ask, and go before there is an answer."""
        with suppress(httpx.TimeoutException):
            self._http.post(f"{PLACE}/search", json={"text": self._text(), "limit": 100, "count": True}, timeout=0.002)

    def _job(self) -> None:
        form = self._chance.choice(({"kind": "check"}, {"kind": "label", "labels": ["dog", "car"], "limit": 50}))
        id = self._send(f"{PLACE}/jobs", form, status=202).json()["id"]
        assert "event: done" in self._get(f"/api/v1/jobs/{id}/events").text

    def _cancelled_job(self) -> None:
        id = self._send(f"{PLACE}/jobs", {"kind": "duplicates"}, status=202).json()["id"]
        assert self._http.post(f"/api/v1/jobs/{id}/cancel").status_code == 202

    def _mistake(self) -> None:
        self._send(f"{PLACE}/search", {"text": "a", "limit": -1}, status=422)
        self._send(f"/api/v1/indexes/i{self._chance.random()}/search", {"text": "a"}, status=404)
        assert self._http.get(f"/nothing/{self._chance.random()}").status_code == 404
        broken = base64.b64encode(self._chance.randbytes(200)).decode()
        self._send(f"{PLACE}/search", {"image": broken}, status=400)

    def _watch(self) -> None:
        assert "vlmsearch_http_requests_total" in self._get("/metrics").text
        assert self._get("/readyz").json() == {"status": "ok"}
        self._get(PLACE)


def _png(seed: int) -> bytes:
    out = BytesIO()
    make_scene(seed).draw(96).save(out, "PNG")
    return out.getvalue()
