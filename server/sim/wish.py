"""What a request's body asks for, in the three dialects, or the error that SGLang answers.

Pure: no socket, clock or engine.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from server.sim.answer import Wish
from server.sim.dialect import Stream
from server.sim.settings import CONTEXT_TOKENS_DEFAULT, Settings

BYTES_A_TOKEN = 4  # The usual rule of thumb for English text; there is no tokenizer here.
GENERATE_TOKENS_DEFAULT = 128  # SGLang's sampling default on /generate.


class WishError(ValueError):
    """A body that SGLang answers with status 400; the message is for the user."""


def read(settings: Settings, api: str, raw: bytes, id: str, created: int) -> Wish:
    """The wish in this body. Raises WishError."""
    body = _object(raw)
    prompt, prompt_tokens = PROMPTS[api](body)
    limits = body.get("sampling_params") or {} if api == "generate" else body
    if not isinstance(limits, dict):
        raise WishError("sampling_params: Input should be a valid dictionary")
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise WishError("stream_options: Input should be a valid dictionary")
    flags = settings.flags
    stream = Stream(
        version=settings.version,
        api=api,
        id=str(body.get("rid") or id),
        created=created,
        model=str(body.get("model") or flags["served_model_name"]),
        stamp=settings.stamp,
        counted=bool(options.get("continuous_usage_stats")),
        prompt_tokens=prompt_tokens,
    )
    return Wish(
        stream=stream,
        prompt=prompt,
        max_tokens=_max_tokens(settings, api, limits, prompt_tokens),
        min_tokens=_count("min_tokens", limits.get("min_new_tokens" if api == "generate" else "min_tokens") or 0),
        ignore_eos=bool(limits.get("ignore_eos")),
        streamed=bool(body.get("stream")),
        usage=bool(options.get("include_usage")),
        spec_details=bool(body.get("return_spec_tokens_details")) and settings.version != "0.5.9",
        thinks=api == "chat" and bool(flags["reasoning_parser"]) and body.get("separate_reasoning", True) is not False,
        incremental=bool(flags.get("incremental_streaming_output")),
    )


def _object(raw: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except ValueError as error:
        raise WishError(f"Invalid JSON: {error}") from None
    if not isinstance(body, dict):
        raise WishError("Input should be a valid dictionary or object")
    return body


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise WishError(f"{name}: Input should be a valid non-negative integer, got {value!r}.")
    return value


def _max_tokens(settings: Settings, api: str, limits: Mapping[str, Any], prompt_tokens: int) -> int:
    context = settings.flags["context_length"] or CONTEXT_TOKENS_DEFAULT
    names = ("max_new_tokens",) if api == "generate" else ("max_completion_tokens", "max_tokens")
    given = next((limits[name] for name in names if limits.get(name) is not None), None)
    if given is None:
        return GENERATE_TOKENS_DEFAULT if api == "generate" else max(1, context - prompt_tokens)
    wanted = _count(names[-1], given)
    if wanted < 1:
        raise WishError(f"{names[-1]} must be at least 1, got {wanted}.")
    if prompt_tokens + wanted > context:
        raise WishError(
            f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested a "
            f"total of {prompt_tokens + wanted} tokens: {prompt_tokens} tokens from the input messages and {wanted} "
            "tokens for the completion. Please reduce the number of tokens in the input messages or the completion."
        )
    return wanted


def _tokens_of(text: str) -> int:
    return max(1, -(-len(text) // BYTES_A_TOKEN))


def _chat_prompt(body: Mapping[str, Any]) -> tuple[str, int]:
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise WishError(
            "1 validation errors:\n  {'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required'}"
        )
    if not messages:
        raise WishError("Messages cannot be empty.")
    text = "\n".join(map(_message_text, messages))
    return text, _tokens_of(text)


def _message_text(message: Any) -> str:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise WishError("messages: every message needs a role and a content.")
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return f"{message['role']}: {content}"


def _completions_prompt(body: Mapping[str, Any]) -> tuple[str, int]:
    prompt = body.get("prompt")
    if isinstance(prompt, str) and prompt:
        return prompt, _tokens_of(prompt)
    if _is_ids(prompt):
        return str(prompt), len(prompt or [])
    raise WishError("prompt: give one text or one list of token ids; the simulator takes no batches.")


def _generate_prompt(body: Mapping[str, Any]) -> tuple[str, int]:
    if isinstance(body.get("text"), str):
        return body["text"], _tokens_of(body["text"])
    if _is_ids(body.get("input_ids")):
        return str(body["input_ids"]), len(body["input_ids"])
    raise WishError(
        "Either text or input_ids should be provided, and one of them only; the simulator takes no batches."
    )


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(x, int) for x in value)


PROMPTS = {"chat": _chat_prompt, "completions": _completions_prompt, "generate": _generate_prompt}
