"""The unrecorded requests that a server gets before its first Point: they compile, fill caches, and tell a duration."""

import dataclasses
from dataclasses import asdict

from loadgen import prompts, worker
from loadgen.config import Config
from loadgen.crew import hire
from loadgen.errors import Bug, ClusterError, ConfigError, Interrupted, LoadgenError, ServerError, StorageError
from loadgen.interrupt import Stop
from loadgen.launched import Launched
from loadgen.margin import margin
from loadgen.plan import WARM_UP_REQUESTS
from loadgen.shard import limits
from loadgen.verdict import Verdict
from loadgen.watch import hang_after_s, observe


def warm_up(launched: Launched, conf: Config, stop: Stop) -> float:
    """Send the unrecorded requests; their mean duration in seconds. Raises LoadgenError when none is answered."""
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
        tls=launched.spec.tls,
        keep_text=False,
    )
    crew = hire([shard], load, 0.0, True, launched.places, None, stop)
    try:
        watch = observe(crew, launched, lambda _: None, stop, hang_after_s(conf), conf.engine.warm_up_s_max)
    finally:
        crew.dismiss()
    if watch.failed:
        raise _error(watch.failed, stop)
    if watch.board["failed"] == watch.board["finished"]:
        returned = watch.returned[0]
        answers = returned.get("outcomes") or returned["reason"]
        none = f"none of the {WARM_UP_REQUESTS} warm-up requests was answered ({answers})"
        ours = launched.spec.engine != "external"
        where = f"read server{launched.stem}.log" if ours else "see engine.url, engine.api and engine.api_key_env"
        raise ServerError(f"{none}; {where}")
    return float(watch.board["duration_s"])


def _error(failed: Verdict, stop: Stop) -> LoadgenError:
    """What ended the warm-up, as the error that it is."""
    if stop.signum is not None:
        return Interrupted(stop.signum)
    (reason,) = failed.reasons
    words = f"the warm-up failed: {margin(asdict(reason))}; {reason.advice}"
    if failed.exit_code == ServerError.exit_code:
        return ServerError(words, reason.log_tail)
    kinds = {kind.exit_code: kind for kind in (ConfigError, ClusterError, StorageError)}
    return kinds.get(failed.exit_code, Bug)(words)
