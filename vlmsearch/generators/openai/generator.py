"""Generation on a server with OpenAI's interface: trtllm-serve, vLLM, and every other that is compatible."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, TypeAlias, Union

import httpx

from vlmsearch._util.closable import closing_at_end
from vlmsearch._util.credentials import redact
from vlmsearch._util.text import json_bytes
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError, InvalidInputError
from vlmsearch.generators.base import GenerationOptions, Generator, Picture, PicturesRefusedError
from vlmsearch.generators.openai.responses import (
    Api,
    OtherShapeError,
    likely_tokens,
    prompt_tokens,
    read_event,
    refused_parameter,
)
from vlmsearch.generators.pictures import (
    MAX_PICTURES,
    MAX_SIDE,
    check_reading,
    estimate_tokens,
    images_in,
    is_about_pictures,
    refused_pictures,
)
from vlmsearch.generators.text import sum_by_word, until_stop
from vlmsearch.generators.thoughts import UnfinishedThoughtsError
from vlmsearch.media.images import data_url
from vlmsearch.openai_api.api import JsonApi, RefusedError
from vlmsearch.openai_api.http import DEFAULT_OPTIONS, HttpOptions

_MAX_STOPS = 4
"""Maximum number of stop words in OpenAI's interface. The text is cut at all of them here."""
_LIST_BYTES = 2**20
"""Size of the largest list of models that is read."""
_Content: TypeAlias = Union[str, list[dict[str, object]]]
Detail = Literal["low", "high", "auto"]
_MAX_LIKELIHOODS = 20
"""Number of likely tokens that OpenAI's interface tells at most."""
_ANSWER_BYTES = 2**20
"""Maximum size of an answer of one token, and of an event of a stream."""
_STREAM_BYTES, _TOKEN_BYTES = 2**24, 2**12
"""Maximum size of a stream, and what each token adds to it."""
_REPLACED = frozenset({"max_tokens", "stop", "stream_options"})
"""Parameters that nobody misses: the limit has another name, and the text is cut at stop words here."""
_CHAT_TOKENS, _FIRST_TOKENS = 32, 1
"""Maximum number of tokens of a chat template, and the number in completions: the one that begins a text."""


class OmittedOptionWarning(UserWarning):
    """A server does not take an option, which was left out."""


class OpenAIGenerator(Generator):
    """``openai:http://host:8000/v1?model=NAME``: chat completions, or completions with ``api=completions``.

    ``model`` may be left out where the server has just one. The key comes from the environment variable OPENAI_API_KEY,
    unless `HttpOptions` name another. Nothing is asked again after the first token.

    With ``tokenizer``, a tokenizer.json or its folder, and ``context``, how many tokens the
    model reads, it implements `CountsTokens`; a chat template is counted as 32 tokens. ``top_k`` and
    ``repetition_penalty`` are sent by their names in vLLM and trtllm-serve; bad words and beams have no place in the
    interface and are refused.

    In chats it sends pictures, as JPEG in data URLs, with ``detail`` if given. A server that refuses them,
    or so many, is sent no more than it takes from then on; ``pictures=0`` sends none. A picture is counted as
    ``picture_tokens``, or by default as a token for 32 by 32 pixels, as Qwen3-VL does.

    In chats it implements `HasLikelihoods`, with the 20 likeliest tokens of a server that tells ``logprobs``.

    Options that are None or change nothing are not sent. A limit, ``temperature``, ``top_p``, ``stop``, ``seed`` or
    ``cache_salt`` that the server refuses by its name is left out from then on. The limit has another name then, the
    text is cut at stop words here, and an `OmittedOptionWarning` names any other. ``thinks`` is for a server whose
    texts begin with thoughts without a tag before them, as with DeepSeek-R1's chat template. Streams hold them back
    then.
    """

    context: int
    _count: Callable[[str], int]

    def __init__(
        self,
        location: str,
        *,
        model: str | None = None,
        api: Api = "chat",
        tokenizer: Path | None = None,
        context: int | None = None,
        pictures: int = MAX_PICTURES,
        detail: Detail | None = None,
        picture_tokens: int | None = None,
        thinks: bool = False,
        options: HttpOptions = DEFAULT_OPTIONS,
    ) -> None:
        if (tokenizer is None) != (context is None):
            raise ConfigError("openai: counts tokens with both ?tokenizer= and ?context=; one of them is missing")
        check_reading(context, pictures, picture_tokens)
        self._server = JsonApi("openai", location, options)
        self.name = self._server.name
        self._model = model
        self._api = api
        self._tag = "<think>" if thinks else ""
        self._refused = frozenset[str]()
        """Parameters that the server does not take."""
        self.max_pictures = pictures if api == "chat" else 0
        self.max_side = MAX_SIDE
        self._has_logprobs = api == "chat" and not thinks
        self._detail = detail
        self._picture_tokens = picture_tokens
        if tokenizer is not None and context is not None:
            from vlmsearch.generators.text import token_counter

            self.context, self._count = context, token_counter(tokenizer)

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        """Return the text as the server sends it.

        Closing the iterator closes the connection, which stops the server.
        """
        return self._text_of(prompt, options or GenerationOptions())

    def stream_parts(
        self,
        parts: Sequence[str | Picture],
        options: GenerationOptions | None = None,
        *,
        on_usage: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        """Return the text as the server sends it; see `SeesPictures`."""
        return self._text_of(self._content_of(parts), options or GenerationOptions(), on_usage)

    def next_word_likelihoods(self, parts: Sequence[str | Picture], words: Sequence[str]) -> list[float] | None:
        """Return how likely the next token is each word; None where the server does not tell. See `HasLikelihoods`."""
        if not self._has_logprobs:
            return None
        texts = [part for part in parts if isinstance(part, str)]
        prompt = "".join(texts) if len(texts) == len(parts) else self._content_of(parts)
        try:
            answer = self._first_token(prompt)
            tokens = likely_tokens(answer)
        except OtherShapeError as exc:
            raise self._server.other("a completion", json.dumps(answer)) from exc
        except (BackendError, ConfigError, UnfinishedThoughtsError) as exc:
            if "logprobs" not in str(exc) and not isinstance(exc, UnfinishedThoughtsError):
                raise
            tokens = None  # models that reason before they answer refuse them, or one token
        self._has_logprobs = tokens is not None
        return None if tokens is None else sum_by_word(tokens, words)

    def _first_token(self, prompt: _Content) -> Any:
        """Return an answer of one token to a prompt, with the tokens that were likely."""
        asked = {"stream": False, "logprobs": True, "top_logprobs": _MAX_LIKELIHOODS}
        while True:
            body = self._body(prompt, GenerationOptions(max_tokens=1)) | asked
            try:
                return self._server.post("chat/completions", body, max_bytes=_ANSWER_BYTES)
            except (BackendError, RefusedError) as exc:
                self._raise_better(exc, prompt, body)

    def picture_tokens(self, width: int, height: int) -> int:
        """Return about how many tokens a picture takes."""
        return self._picture_tokens or estimate_tokens(width, height)

    def _content_of(self, parts: Sequence[str | Picture]) -> list[dict[str, object]]:
        images_in(parts, self.name, self.max_pictures)
        return [self._part(part) for part in parts]

    def _part(self, part: str | Picture) -> dict[str, object]:
        if isinstance(part, str):
            return {"type": "text", "text": part}
        url: dict[str, object] = {"url": data_url(part.image, edge=self.max_side)}
        return {"type": "image_url", "image_url": url | ({"detail": self._detail} if self._detail else {})}

    def _text_of(
        self, prompt: _Content, options: GenerationOptions, on_usage: Callable[[int], None] | None = None
    ) -> Iterator[str]:
        if options.bad_words or options.beam_width > 1:
            raise ConfigError(f"{self.name}: OpenAI's interface has no bad_words and no beam_width; leave them out")
        return until_stop(self._pieces(prompt, options, on_usage), options.stop, self._tag)

    def count_tokens(self, prompt: str) -> int:
        """Return how many tokens a prompt has; see `CountsTokens`."""
        return self._count(prompt) + (_CHAT_TOKENS if self._api == "chat" else _FIRST_TOKENS)

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def _pieces(
        self, prompt: _Content, options: GenerationOptions, on_usage: Callable[[int], None] | None
    ) -> Iterator[str]:
        def begin() -> tuple[str, Iterator[str]]:
            pieces = self._read(prompt, options, on_usage)
            return next(pieces, ""), pieces

        first, others = self._server.again(begin)
        with closing_at_end(others):
            if first:
                yield first
            yield from others

    def _open(self, stack: ExitStack, prompt: _Content, options: GenerationOptions) -> httpx.Response:
        """Return the answer to one request, its body not read yet, which ``stack`` closes."""
        path = "chat/completions" if self._api == "chat" else "completions"
        while True:
            body = self._body(prompt, options) | {"stream": True}
            try:
                return stack.enter_context(self._server.exchange("POST", path, json_bytes(body)))
            except (BackendError, RefusedError) as exc:
                self._raise_better(exc, prompt, body)

    def _raise_better(self, exc: BackendError | RefusedError, prompt: _Content, body: Mapping[str, object]) -> None:
        """Raise what an error means for a prompt. Return where a parameter is refused, which is learnt."""
        is_too_long = isinstance(exc, RefusedError) and exc.is_too_long
        if refused := None if is_too_long else refused_parameter(str(exc), body):
            if refused not in self._refused | _REPLACED:
                message = f"{self.name} does not take {refused}, which is left out ({exc})"
                warnings.warn(message, OmittedOptionWarning, stacklevel=2)
            self._refused |= {refused}
            return
        if isinstance(exc, RefusedError):
            raise self._refusal(exc, prompt) from exc
        if not isinstance(prompt, str) and is_about_pictures(str(exc)):
            self.max_pictures = 0  # llama.cpp says so of a model that does not see with status 500
            raise PicturesRefusedError(str(exc), 0) from exc
        raise exc

    def _refusal(self, refused: RefusedError, prompt: _Content) -> Exception:
        if not isinstance(prompt, str) and (
            refusal := refused_pictures(self.name, refused.message, is_too_long=refused.is_too_long)
        ):
            if refusal.at_most is not None:
                self.max_pictures = min(self.max_pictures, refusal.at_most)
            return refusal
        if "output limit was reached" in refused.message:
            return UnfinishedThoughtsError()  # in the words of OpenAI
        if not refused.is_too_long:
            return refused.error
        advice = "ask with a smaller limit, or add ?tokenizer= and ?context= so that prompts are fitted"
        message = f"{self.name} cannot read a prompt of this length ({refused.message}): {advice}"
        return InvalidInputError("too_long", message)

    def _body(self, prompt: _Content, options: GenerationOptions) -> dict[str, object]:
        refused = self._refused  # another thread may learn of more
        given: dict[str, object] = {
            "max_tokens": options.max_tokens,
            "max_completion_tokens": options.max_tokens if "max_tokens" in refused else None,
            "temperature": options.temperature,
            "top_p": options.top_p if options.top_p < 1 else None,
            "top_k": options.top_k,
            "repetition_penalty": options.repetition_penalty if options.repetition_penalty != 1 else None,
            "stop": list(options.stop[:_MAX_STOPS]) or None,
            "seed": options.seed,
            "cache_salt": options.cache_salt,
            # what was counted proves that pictures were read
            "stream_options": None if isinstance(prompt, str) else {"include_usage": True},
        }
        place: dict[str, object] = (
            {"messages": [{"role": "user", "content": prompt}]} if self._api == "chat" else {"prompt": prompt}
        )
        chosen = {name: value for name, value in given.items() if value is not None and name not in refused}
        return {"model": self._chosen_model()} | place | chosen

    def _chosen_model(self) -> str:
        if self._model is None:
            answer = self._server.get("models", max_bytes=_LIST_BYTES)
            try:
                names = sorted(redact(str(model["id"]), [self._server.key]) for model in answer["data"])
            except (KeyError, TypeError) as exc:
                raise self._server.other("a list of models", json.dumps(answer)) from exc
            if len(names) != 1:
                raise ConfigError(f"{self.name} has {len(names)} models; add ?model= with one of {', '.join(names)}")
            self._model = names[0]
        return self._model

    def _read(
        self, prompt: _Content, options: GenerationOptions, on_usage: Callable[[int], None] | None
    ) -> Iterator[str]:
        """Yield the pieces of the text in a stream of events."""
        reason, has_text = "", False
        with ExitStack() as stack:
            response = self._open(stack, prompt, options)
            max_bytes = _STREAM_BYTES + _TOKEN_BYTES * options.max_tokens
            for _, data in self._server.events(response, _ANSWER_BYTES, max_bytes):
                if data == "[DONE]":
                    reason = reason or data
                    break
                event = self._parse(data)
                tokens = prompt_tokens(event)
                if tokens is not None and on_usage is not None:
                    on_usage(tokens)
                try:
                    piece, end = read_event(event, self._api)
                except OtherShapeError as exc:
                    raise self._server.other("a completion", data) from exc
                if piece:
                    has_text = True
                    yield piece
                reason = reason or end
        if reason == "length" and not has_text and self._api == "chat":
            raise UnfinishedThoughtsError  # which OpenAI counts and does not send
        if not reason:
            raise BackendUnavailableError(f"{self.name} ended its answer in the middle")

    def _parse(self, data: str) -> dict[str, Any]:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError) as exc:
            raise self._server.other("JSON", data) from exc
        if not isinstance(event, dict):
            raise self._server.other("a JSON object", data)
        if error := event.get("error"):
            message = error.get("message", error) if isinstance(error, Mapping) else error
            raise BackendError(f"{self.name} failed while it answered: {redact(str(message), [self._server.key])}")
        return event
