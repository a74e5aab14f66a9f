"""The unrecorded requests that a server gets before its first Point: they compile, fill caches, and tell a duration."""

import dataclasses
import time

from loadgen import cluster, prompts, worker
from loadgen.config import Config
from loadgen.errors import ServerError
from loadgen.interrupt import Stop
from loadgen.launched import Launched
from loadgen.plan import WARM_UP_REQUESTS
from loadgen.shard import limits

WARM_UP_S_MAX = 600.0


def warm_up(launched: Launched, conf: Config, stop: Stop) -> float:
    """Send the unrecorded requests; their mean duration in seconds. Raises ServerError when none is answered."""
    load = dataclasses.replace(conf.load, kind="closed", concurrency=WARM_UP_REQUESTS, requests=WARM_UP_REQUESTS)
    plan = prompts.warm_up(conf.workload, conf.block)
    shard = worker.Shard(
        worker=0,
        workers=1,
        concurrency=WARM_UP_REQUESTS,
        plan=plan,
        point_id=f"{launched.id}-warm-up",
        base_urls=tuple(launched.endpoint["urls"]),
        api=conf.engine.api,
        model_id=launched.endpoint.get("model_id") or conf.model.name,
        stagger_s=0.0,
        limits=limits(load),
        identity={},
        api_key_env=conf.engine.api_key_env,
        ca_file=launched.spec.ca_file,
        keep_text=False,
    )
    crew = cluster.hire([shard], load, 0.0, True, None)
    try:
        returned = _await_crew(crew, stop)
        look = crew.look()
    finally:
        crew.dismiss()
    if look["failed"] == look["finished"]:
        none = f"none of the {WARM_UP_REQUESTS} warm-up requests was answered ({returned})"
        ours = launched.spec.engine != "external"
        where = f"read server{launched.stem}.log" if ours else "see engine.url, engine.api and engine.api_key_env"
        raise ServerError(f"{none}; {where}")
    return float(look["duration_s"])


def _await_crew(crew: cluster.Crew, stop: Stop) -> str:
    deadline = time.monotonic() + WARM_UP_S_MAX
    while True:
        returned, lost, over = crew.ended(cluster.POLL_S)
        if lost:
            raise lost[0]
        if over:
            return str(returned[0].get("outcomes") or returned[0]["reason"])
        stop.check()
        if time.monotonic() > deadline:
            raise ServerError(f"the warm-up did not end within {WARM_UP_S_MAX:g} s")
