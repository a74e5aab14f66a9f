"""What broke other tools, group G: whether the workload is what one thinks it is."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from case import asked, facts, numbers, played, refusal
from scripted import DONE, Answer, Request, c, event, f, plain, u, well
from test_worker import PLAN

from loadgen import prompts, summary, verdict
from loadgen.config import Workload
from loadgen.plan import WARM_UP_REQUESTS, payload

BUILTIN = Workload(name="w", source="builtin")
UNKNOWN_KEY = plain("400 Bad Request", b'{"error":{"message":"unknown field nvext"}}')


def shown(rows: list[dict]) -> str:
    """All that the verdict says of a Point of these rows, in words."""
    judged = verdict.as_json(verdict.judge(facts(rows)))
    return "\n".join(map(verdict.margin, [*judged["reasons"], *judged["margins"]]))


def cached(tokens: int, seq: int = 0) -> dict:
    """A good answer to a prompt of a hundred tokens, of which the server knew some."""
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": tokens}}
    return played((100, c("A") + f("stop") + event({"choices": [], "usage": usage}) + DONE), seq=seq)


def test_g01_a_warm_prefix_cache_is_seen() -> None:
    """Cached tokens are a column and a share of the prompts; above 1 % the verdict shows it."""
    rows = [cached(0), cached(5, 1)]
    assert [row["cached_tokens"] for row in rows] == [0, 5]
    assert numbers(rows)["cached_share"] == pytest.approx(0.025)
    assert "cached share 2.5 % (limit 1 %: the server knew prompts already" in shown(rows)
    assert "(limit" not in shown([cached(1)]).partition("cached share")[2].partition("\n")[0]


def test_g01_prompts_of_a_point_are_distinct() -> None:
    """Past the end of the texts they go round again, each with an opening of its own."""
    found, _ = prompts.load(BUILTIN)
    plan = prompts.plan(BUILTIN, found, 0, None)
    texts = [plan.prompt(seq).text for seq in range(3 * len(found))]
    assert len(set(texts)) == len(texts)
    openings = {text[:40] for text in texts[len(found) :]}
    assert len(openings) > len(found)


def test_g02_warm_up_uses_no_measured_prompt() -> None:
    """Not one text in common, whatever the block; and warm-up leaves no rows."""
    found, _ = prompts.load(BUILTIN)
    for block in (0, 1):
        plan, warm = prompts.plan(BUILTIN, found, block, None), prompts.warm_up(BUILTIN, block)
        measured = {str(payload(plan, seq, "chat", "m")["messages"]) for seq in range(2 * len(found))}
        warming = {str(payload(warm, seq, "chat", "m")["messages"]) for seq in range(WARM_UP_REQUESTS)}
        assert len(warming) == WARM_UP_REQUESTS
        assert not measured & warming
    assert all(prompt.kind == prompts.WARM_UP_KIND for prompt in warm.prompts)


async def test_g04_prompt_lengths_are_the_servers() -> None:
    """Texts are asked as they are: the length in the dataset is what the server counted, nothing is assumed."""

    def counting(request: Request, _number: int) -> Answer:
        words = len(request.json["messages"][0]["content"].split())
        return Answer([(5, c("A") + f("stop") + event({"choices": [], "usage": {"prompt_tokens": words}}) + DONE)])

    rows = (await asked(counting, 4)).rows
    assert [row["prompt_tokens"] for row in rows] == [5, 5, 8, 8]  # the second round has a numbered opening line
    assert numbers(rows)["prompt_tokens_mean"] == 6.5


async def test_g04_made_prompts_are_held_against_the_servers_count() -> None:
    """A tokenizer that counts 0.6 of what a prompt was made to have: a warning with both numbers, both are columns."""
    workload = Workload(name="w", source="random", input_tokens=100)
    plan = prompts.plan(workload, prompts.load(workload)[0], 0, None)

    def counting(share: float) -> Callable[[Request, int], Answer]:
        def answer(request: Request, _number: int) -> Answer:
            tokens = round(share * len(request.json["messages"][0]["content"].split()))
            return Answer([(5, c("A") + f("stop") + u(tokens, 1) + DONE)])

        return answer

    rows = (await asked(counting(0.6), 4, plan=plan)).rows
    assert {(row["planned_prompt_tokens"], row["prompt_tokens"]) for row in rows} == {(100, 60)}
    (told,) = summary.caveats(numbers(rows))
    assert "about 100 tokens" in told
    assert "the server counted 60" in told
    assert summary.caveats(numbers((await asked(counting(0.9), 4, plan=plan)).rows)) == []


async def test_g05_output_lengths_that_are_not_held() -> None:
    """Half stop early: each is marked, the share speaks against the Point, the mean length is shown."""
    plan = replace(PLAN, max_tokens=6)

    def early(_request: Request, number: int) -> Answer:
        return well(*range(10, 16)) if number % 2 else well(10, 11)

    rows = (await asked(early, 20, plan=plan)).rows
    found = numbers(rows)
    assert (found["short"], found["output_tokens_mean"], found["failed"]) == (10, 4, 0)
    assert "short share 50 % (limit 1 %)" in shown(rows)
    assert all(row["short"] == (row["output_tokens"] < row["planned_tokens"]) for row in rows)


async def test_g05_a_field_that_the_server_refuses() -> None:
    """ignore_eos is asked where the plan says so; the server's words on an unknown field are in the row."""

    def picky(request: Request, _number: int) -> Answer:
        assert request.json["ignore_eos"] is True
        return UNKNOWN_KEY if "nvext" in request.json else well(5)

    rows = (await asked(picky, 2, plan=replace(PLAN, body={"nvext": {}}))).rows
    assert {row["error"] for row in rows} == {"HTTP 400: unknown field nvext"}
    assert "2 x http_status (HTTP 400: unknown field nvext)" in verdict.judge(facts(rows)).reasons[0].advice


async def test_g06_lengths_of_0_and_1() -> None:
    """Nothing to ask for and nothing to ask are refused by their key; one token in, one out works."""
    assert "workload.max_tokens=0" in refusal(max_tokens=0)
    assert "workload.text" in refusal(source="fixed", text="")
    assert refusal(source="fixed", text="a", max_tokens=1) == ""
    least = Workload(name="w", source="fixed", text="a", max_tokens=1)
    plan = prompts.plan(least, prompts.load(least)[0], 0, None)
    rows = (await asked(well(10), 3, plan=plan)).rows
    assert [(row["outcome"], row["output_tokens"], row["short"]) for row in rows] == [("ok", 1, False)] * 3
    assert numbers(rows)["tpot_ms"]["n"] == 0


def test_g01_sharing_that_is_meant_is_no_warning() -> None:
    """A workload whose prompts begin alike is not told that the server knew them; the share stands in the summary."""
    rows = [cached(50)]
    assert "knew prompts already" in shown(rows)
    meant = verdict.judge(replace(facts(rows), sharing_meant=True))
    assert not any("knew prompts already" in one.note for one in meant.margins)
    assert numbers(rows)["cached_share"] == 0.5


REFUSED = [
    ({"source": "random"}, "add workload.input_tokens=512"),
    ({"source": "random", "input_tokens": 15}, "workload.input_tokens=15"),
    ({"source": "random", "input_tokens": 64, "path": "x.jsonl"}, "not read"),
    ({"source": "fixed", "text": "a", "input_tokens": 64}, "asked as they are"),
    ({"source": "jsonl", "path": "x.jsonl", "input_tokens": 64}, "asked as they are"),
    ({"input_tokens": {"dist": "normal", "mean": 64}}, "workload.input_tokens.stdev is missing"),
    ({"output_tokens": {"dist": "normal"}}, "workload.output_tokens.mean is missing"),
    ({"output_tokens": 0}, "workload.output_tokens=0"),
    ({"input_tokens": 200_001}, "from 16 to 200000"),
    ({"prefix_tokens": 31}, "workload.prefix_tokens=31"),
    ({"prefix_tokens": 200_000, "prefix_groups": 320}, "shorter or fewer prefixes"),
    ({"source": "fixed", "text": " "}, "needs the prompt"),
    ({"source": "fixed", "text": "half \ud800"}, "half of a character"),
    ({"text": "given"}, "not asked"),
    ({"prefix_tokens": 64, "prefix_groups": 0}, "workload.prefix_groups=0"),
    ({"turns": 0}, "workload.turns=0"),
    ({"turns": 65}, "workload.turns=65"),
    ({"think_s": 1.0}, "add workload.turns=4"),
    ({"turns": 2, "think_s": -1.0}, "workload.think_s=-1"),
    ({"turns": 2, "source": "fixed", "text": "a"}, "has no conversations"),
    ({"turns": 2, "source": "random", "input_tokens": 64}, "has no conversations"),
    ({"turns": 2, "engine": {"api": "completions"}}, "set engine.api=chat"),
    ({"turns": 2, "load": {"kind": "open"}}, "no open loop"),
    ({"turns": 2, "load": {"requests": 3}}, "give a multiple of workload.turns=2"),
    ({"turns": 2, "load": {"requests": 4}, "source": "jsonl", "path": "x.jsonl"}, "leave load.requests out"),
    ({"turns": 4, "load": {"requests": 4, "concurrency": 2}}, "ask for at least 8"),
    ({"turns": 4, "load": {"requests": 8, "concurrency": 2}, "think_s": 0.5}, ""),
    ({"input_tokens": 64, "output_tokens": {"dist": "uniform", "min": 1, "max": 9}, "prefix_tokens": 64}, ""),
]


@pytest.mark.parametrize(("workload", "said"), REFUSED, ids=range(len(REFUSED)))
def test_workloads_that_cannot_be_meant_are_refused(workload: dict, said: str) -> None:
    """One sentence that names the key and what to change."""
    told = refusal(**workload)
    assert said in told
    assert bool(told) == bool(said)


UNSENDABLE = [{"seed": 10**30}, {"top_p": float("nan")}, {"logit_bias": {5: 1}}, {"stop": "half \ud800"}]
SAMPLING = [{"sampling_params": {"n": 2}}, {"sampling_params": {"max_new_tokens": 2}}, {"sampling_params": 5}]


@pytest.mark.parametrize("body", [{"n": 2}, {"stream": False}, {"stream": None}, *SAMPLING])
def test_g05_several_choices_and_whole_answers_are_refused(body: dict) -> None:
    """What would not be one stream a request is refused before anything starts."""
    assert "workload.body." in refusal(body=body)
    assert refusal(body={"n": 1, "stream": True, "stream_options": None}) == ""


@pytest.mark.parametrize("body", UNSENDABLE, ids=range(len(UNSENDABLE)))
def test_a_body_that_no_request_can_carry_is_refused(body: dict) -> None:
    """What JSON changes or has no form for is found before the start, not by a worker."""
    assert "no request can carry" in refusal(body=body)
