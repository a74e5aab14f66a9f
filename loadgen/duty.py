"""A worker's whole life in a process that Ray chose: it drives its share of a Point and writes down its rows.

It must not know of Ray: `wall` is whatever has `beat.remote`. What is imported here is what every worker's start
costs.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import uvloop

from loadgen import cores, record, store, worker


def work(shard: worker.Shard | None, wall: Any, key: str, folder: str | None) -> dict[str, Any]:
    """Drive the shard's streams as the board `key` says; rows go to `folder`, or outcomes home when it is None."""
    if shard is None:  # hired before there is work: this process has imported what it takes
        return {}
    with cores.alone(shard.worker):
        return _drive(shard, wall, key, folder)


def _drive(shard: worker.Shard, wall: Any, key: str, folder: str | None) -> dict[str, Any]:
    async def tell(beat: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = await wall.beat.remote(key, beat)
        return answer

    if folder is None:
        outcomes: Counter[str] = Counter()
        done = uvloop.run(
            worker.drive(
                shard,
                tell,
                lambda rows: outcomes.update(f"{row['outcome']} {row['error'] or ''}".strip() for row in rows),
            )
        )
        return {**done, "outcomes": dict(outcomes)}
    rows = store.RowWriter(store.stream_path(Path(folder), shard.worker), record.IDENTITY + record.REQUEST)
    try:
        return uvloop.run(worker.drive(shard, tell, rows.append_with_texts))
    finally:
        rows.close()
