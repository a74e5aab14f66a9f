"""The server's actor under a real Ray: what it tells, and that nothing of its server outlives it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from loadgen.cluster import lean
from server.actor import ServerActor
from server.spec import ServerSpec

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "process"))

from fakes import age, eventually, fake_python, is_gone, pids_in  # noqa: E402

THREADS = 8


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One local Ray with two logical GPUs for all tests here."""
    # Ray's sockets allow 107 bytes of path.
    folder = tempfile.mkdtemp(prefix="lg", dir="/tmp")
    with lean():
        ray.init(
            address="local",
            num_cpus=2,
            num_gpus=2,
            include_dashboard=False,
            _temp_dir=folder,
            runtime_env={"env_vars": {"PYTHONPATH": str(ROOT), "TEST_KEY": "canary"}},
            log_to_driver=False,
        )
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def actor(cluster: None, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Actors with fake servers that do as told; what is left of them is killed after the test."""
    made: list[Any] = []

    def make(fields: dict[str, Any] | None = None, gpus: int = 0, **fake: Any) -> Any:
        given = {"engine": "sglang", "env": {"FAKE": json.dumps(fake)}, "python": (fake_python(tmp_path),)}
        spec = ServerSpec(variant="baseline", **{**given, "ready_s_max": 60.0, **(fields or {})})
        remote = ray.remote(ServerActor).options(num_cpus=0, num_gpus=gpus, max_concurrency=THREADS)
        made.append(remote.remote(spec, str(tmp_path / "out")))
        return made[-1]

    yield make
    for handle in made:
        ray.kill(handle)


def ask(handle: Any, method: str, *args: Any) -> Any:
    return ray.get(getattr(handle, method).remote(*args), timeout=60)


def test_a_launch_from_start_to_stop(actor: Callable[..., Any], tmp_path: Path) -> None:
    """The Endpoint says where and what the server is; the questions have answers; stop leaves nothing."""
    handle = actor(pids=str(tmp_path / "pids"))
    assert ask(handle, "look")["alive"] is False
    endpoint = ask(handle, "start")
    assert endpoint["ok"], endpoint
    assert endpoint["url"] == f"http://127.0.0.1:{endpoint['port']}"
    assert (endpoint["version"], endpoint["model_id"]) == ("0.5.9", "fake-model")
    assert endpoint["server_info"]["random_seed"] == endpoint["seed"]
    assert endpoint["pid"] in endpoint["pids"]
    assert endpoint["argv"][1:3] == ["-m", "sglang.launch_server"]
    assert Path(endpoint["log"]).parent == tmp_path / "out"
    assert "canary" not in json.dumps(endpoint)
    assert ask(handle, "look") == {"alive": True, "exit": None, "reason": None}
    proof = ask(handle, "proof")
    assert (proof["replaced"], proof["said"]) == (None, [])
    assert proof["infos"][endpoint["url"]]["random_seed"] == endpoint["seed"]
    assert ask(handle, "flush") is True
    rows = eventually(lambda: ask(handle, "telemetry"))
    assert {row["name"] for row in rows} == {"sglang:num_running_reqs"}
    assert json.loads(rows[0]["labels"]) == {"tp_rank": "0"}
    assert "api_key" not in ask(handle, "infos")[endpoint["url"]]
    assert ask(handle, "provenance")["packages"]["ray"] == ray.__version__
    assert ask(handle, "stop") == {"clean": True, "left": []}
    assert all(is_gone(pid) for pid in pids_in(tmp_path / "pids"))
    assert ask(handle, "look")["alive"] is False
    assert ask(handle, "stop") == {"clean": True, "left": []}


@pytest.mark.parametrize("fake", [{}, {"ignore_term": True, "grandchild": True, "escaped": True}])
def test_r08_i01_nothing_outlives_a_killed_actor(
    actor: Callable[..., Any], tmp_path: Path, fake: dict[str, Any]
) -> None:
    """ray.kill gives the actor no last word, and yet its server and every process of it go."""
    handle = actor(pids=str(tmp_path / "pids"), **fake)
    assert ask(handle, "start")["ok"]
    pids = pids_in(tmp_path / "pids")
    ray.kill(handle)
    eventually(lambda: all(is_gone(pid) for pid in pids))


def test_i01_nothing_outlives_an_actor_that_nobody_holds(cluster: None, tmp_path: Path) -> None:
    """With its last handle gone Ray ends the actor; its server and what escaped it go too."""
    fake = json.dumps({"pids": str(tmp_path / "pids"), "grandchild": True, "escaped": True})
    spec = ServerSpec("sglang", "baseline", env={"FAKE": fake}, python=(fake_python(tmp_path),), ready_s_max=60.0)
    handle = ray.remote(ServerActor).options(num_cpus=0, max_concurrency=THREADS).remote(spec, str(tmp_path / "out"))
    assert ask(handle, "start")["ok"]
    pids = pids_in(tmp_path / "pids")
    del handle
    eventually(lambda: all(is_gone(pid) for pid in pids))


def test_r08_the_log_of_a_killed_actor_that_has_not_the_drivers_disk(cluster: None, tmp_path: Path) -> None:
    """It lies in a folder of its node, which the next server's actor there takes away when it is a day old."""
    spec = ServerSpec("sglang", "baseline", env={"FAKE": "{}"}, python=(fake_python(tmp_path),), ready_s_max=60.0)
    remote = ray.remote(ServerActor).options(num_cpus=0, max_concurrency=THREADS)
    elsewhere = (spec, "", "127.0.0.1", "server.log", "0a1b", str(tmp_path / "nowhere"))
    killed = remote.remote(*elsewhere)
    log = Path(ask(killed, "start")["log"])
    assert log.is_file()
    ray.kill(killed)
    later = remote.remote(*elsewhere)
    eventually(lambda: ask(later, "leftovers") == [])
    assert log.is_file()

    def is_aged_and_gone() -> bool:
        with contextlib.suppress(FileNotFoundError):
            age(log, log.parent)  # its server may still be writing
        return ask(later, "leftovers") == [] and not log.parent.exists()

    eventually(is_aged_and_gone)
    ask(later, "forget")
    ray.kill(later)


def test_gpus_are_passed_on(actor: Callable[..., Any]) -> None:
    """The devices that Ray gave to the actor are the ones that the server sees."""
    handle = actor(gpus=2, env=["CUDA_VISIBLE_DEVICES"])
    endpoint = ask(handle, "start")
    assert sorted(endpoint["gpus"]) == ["0", "1"]
    assert endpoint["env"]["CUDA_VISIBLE_DEVICES"] == ",".join(endpoint["gpus"])
    assert f"CUDA_VISIBLE_DEVICES={','.join(endpoint['gpus'])}" in Path(endpoint["log"]).read_text()


def test_rays_thread_limit_is_not_passed_on(actor: Callable[..., Any]) -> None:
    """Ray limits its workers' threads by a variable; the server gets what the user's shell had."""
    endpoint = ask(actor(env=["OMP_NUM_THREADS"]), "start")
    assert f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS')}" in Path(endpoint["log"]).read_text()


def test_a_failed_start_is_an_answer(actor: Callable[..., Any]) -> None:
    """A server that ends while starting is told with its status and its log's last lines."""
    told = ask(actor(exit=3, say=["FATAL: bad weights"]), "start")
    assert (told["ok"], told["exit"], told["left"]) == (False, 3, [])
    assert "exit status 3" in told["reason"]
    assert told["log_tail"] == "FATAL: bad weights"


def test_a_start_can_be_stopped(actor: Callable[..., Any], tmp_path: Path) -> None:
    """Stop works while start is waiting, and start answers soon after."""
    handle = actor(bind=False, pids=str(tmp_path / "pids"), say=["Load weight begin."])
    starting = handle.start.remote()
    pids = pids_in(tmp_path / "pids")
    eventually(lambda: ask(handle, "progress").startswith("loading weights"))
    eventually(lambda: "nothing listens on its port yet" in ask(handle, "progress"))
    assert ask(handle, "stop")["clean"]
    assert ray.get(starting, timeout=30)["ok"] is False
    assert all(is_gone(pid) for pid in pids)


def test_a_death_is_seen(actor: Callable[..., Any]) -> None:
    """A server that has ended is not alive, with its status."""
    handle = actor()
    os.kill(ask(handle, "start")["pid"], signal.SIGTERM)
    eventually(lambda: not ask(handle, "look")["alive"])
    assert ask(handle, "proof")["replaced"] == "the server was killed by signal 15 (SIGTERM)"
    told = ask(handle, "look")
    assert (told["exit"], told["reason"]) == (-15, "the server was killed by signal 15 (SIGTERM)")


def test_the_keys_variable_must_be_set(actor: Callable[..., Any]) -> None:
    """A named variable without a value is told before anything is started."""
    told = ask(actor({"api_key_env": "NOT_SET"}), "start")
    assert "engine.api_key_env names NOT_SET" in told["reason"]


def test_an_external_server_is_only_asked(actor: Callable[..., Any]) -> None:
    """What is not ours is neither started nor stopped; it gets the key, which is never returned."""
    ours = ask(actor(), "start")
    fields = {"engine": "external", "urls": (ours["url"] + "/v1/",), "api_key_env": "TEST_KEY", "env": {}}
    outside = actor(fields)
    endpoint = ask(outside, "start")
    assert endpoint["ok"], endpoint
    assert (endpoint["url"], endpoint["pid"], endpoint["model_id"]) == (ours["url"], None, "fake-model")
    assert endpoint["server_info"]["authorization_seen"] == "Bearer ***"
    assert ask(outside, "look")["alive"] is True
    assert ask(outside, "stop") == {"clean": True, "left": []}
    assert not is_gone(ours["pid"])


def test_an_external_server_that_is_not_there(actor: Callable[..., Any]) -> None:
    """Nothing at the address is told at once, with the address."""
    began_s = time.monotonic()
    told = ask(actor({"engine": "external", "urls": ("http://127.0.0.1:9",), "env": {}}), "start")
    assert told["ok"] is False
    assert "nothing answers at http://127.0.0.1:9" in told["reason"]
    assert time.monotonic() - began_s < 30


DRIVER = """
import sys, time, ray
from loadgen.cluster import lean
from server.actor import ServerActor
from server.spec import ServerSpec
folder, python, fake, temp, root = sys.argv[1:]
with lean():
    ray.init(address="local", num_cpus=1, include_dashboard=False, _temp_dir=temp,
             runtime_env={"env_vars": {"PYTHONPATH": root}}, log_to_driver=False)
spec = ServerSpec("sglang", "baseline", env={"FAKE": fake}, python=(python,))
actor = ray.remote(ServerActor).options(num_cpus=0, max_concurrency=4).remote(spec, folder)
print(ray.get(actor.start.remote())["ok"], flush=True)
if sys.stdin.readline().strip() == "raise":
    raise RuntimeError
ray.shutdown()
time.sleep(600)
"""


@pytest.mark.parametrize(
    "end",
    ["kill", pytest.param("shutdown", marks=pytest.mark.slow), pytest.param("raise", marks=pytest.mark.slow)],
)
def test_r08_i01_i02_nothing_outlives_a_driver(tmp_path: Path, end: str) -> None:
    """Driver killed with -9, out of the cluster, or failed: within 15 s no process of its server is left."""
    temp = tempfile.mkdtemp(prefix="lg", dir="/tmp")
    fake = json.dumps({"pids": str(tmp_path / "pids"), "grandchild": True, "escaped": True, "ignore_term": True})
    words = [sys.executable, "-c", DRIVER, str(tmp_path), fake_python(tmp_path), fake, temp, str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env=environment, text=True, **pipes) as driver:
        assert driver.stdin
        assert driver.stdout
        assert driver.stdout.readline().strip() == "True"
        if end == "kill":
            driver.kill()
        else:
            driver.stdin.write(f"{end}\n")
            driver.stdin.flush()
        eventually(lambda: all(is_gone(pid) for pid in pids_in(tmp_path / "pids")), limit_s=15)
        driver.kill()
    shutil.rmtree(temp, ignore_errors=True)
