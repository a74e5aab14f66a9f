"""Several endpoints as a user runs them: what the dataset holds."""

import json
from collections.abc import Callable

from conftest import API_KEY, API_KEY_ENV
from fake_api import Api, serving
from running import Ended

from loadgen.dataset import read_dataset


def test_two_endpoints_share_a_load(cli: Callable[..., Ended]) -> None:
    """Two servers in turns: rows and launch.json say which, and each is asked as often."""
    with serving(Api(API_KEY, "yes")) as one, serving(Api(API_KEY, "yes")) as other:
        plain = ("+variant=baseline", "engine=external", f"engine.api_key_env={API_KEY_ENV}", "load.concurrency=2")
        load = ("load.requests=40", "workload.max_tokens=4", "load.failed_share_max=1")
        ended = cli(*plain, *load, f"engine.url=['{one.url}','{other.url}']")
    assert ended.code in (0, 6), ended.err
    assert [point["files"]["server_log"] for point in ended.points()] == [None]
    endpoints = read_dataset(ended.results)["endpoint"].to_pylist()
    assert {url: endpoints.count(url) for url in set(endpoints)} == {one.url: 20, other.url: 20}
    (launch,) = (json.loads(path.read_text()) for path in ended.results.rglob("launch.json"))
    assert [endpoint["url"] for endpoint in launch["endpoints"]] == [one.url, other.url]
