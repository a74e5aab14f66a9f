"""Five questions to your own data, each answered in DuckDB, Polars and pandas.

    pip install duckdb polars pandas && python docs/your_data.py outputs/2026-01-31/12-00-00

Copy what you need: nothing here imports loadgen. Every answer is a list of rows; the three agree.
"""

import sys
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl

LEVEL = ["variant", "concurrency", "rate"]  # streams in closed loop, requests a second in open loop, the other is null
COUNTS = "verdict = 'VALID' and in_window and outcome = 'ok'"  # rows that enter a latency


def files(folder: str, name: str = "requests.parquet") -> list[str]:
    """The files of finished Points; what is unfinished begins with an underscore."""
    return sorted(str(path) for path in Path(folder).rglob(name))


# --- how long does the first token take, at which load? ---


def first_token_duckdb(folder: str) -> list[tuple]:
    return duckdb.sql(
        f"""select variant, concurrency, rate, count(*) as n,
                   quantile_cont((first_token_ns - sent_ns) / 1e6, 0.5) as p50_ms,
                   quantile_cont((first_token_ns - sent_ns) / 1e6, 0.9) as p90_ms
              from read_parquet({files(folder)}, union_by_name = true)
             where {COUNTS} group by all order by all"""
    ).fetchall()


def first_token_polars(folder: str) -> list[tuple]:
    ttft = (pl.col("first_token_ns") - pl.col("sent_ns")) / 1e6
    return (
        pl.scan_parquet(files(folder))
        .filter((pl.col("verdict") == "VALID") & pl.col("in_window") & (pl.col("outcome") == "ok"))
        .group_by(*LEVEL)
        .agg(
            pl.len(),
            ttft.quantile(0.5, "linear").alias("p50_ms"),
            ttft.quantile(0.9, "linear").alias("p90_ms"),
        )
        .sort(*LEVEL, nulls_last=True)
        .collect()
        .rows()
    )


def first_token_pandas(folder: str) -> list[tuple]:
    rows = counting(folder, ["first_token_ns", "sent_ns"])
    rows["ttft_ms"] = (rows.first_token_ns - rows.sent_ns) / 1e6
    by = rows.groupby(LEVEL, dropna=False).ttft_ms
    return listed(by.agg(["size", "median", lambda some: some.quantile(0.9)]))


# --- how fast does one stream write? ---


def per_stream_duckdb(folder: str) -> list[tuple]:
    return duckdb.sql(
        f"""select variant, concurrency, rate,
                   median(1e9 * (output_tokens - chunk_tokens[1]) / (last_token_ns - first_token_ns)) as tokens_per_s
              from read_parquet({files(folder)}, union_by_name = true)
             where {COUNTS} and last_token_ns > first_token_ns group by all order by all"""
    ).fetchall()


def per_stream_polars(folder: str) -> list[tuple]:
    after_first = pl.col("output_tokens") - pl.col("chunk_tokens").list.first()
    return (
        pl.scan_parquet(files(folder))
        .filter((pl.col("verdict") == "VALID") & pl.col("in_window") & (pl.col("outcome") == "ok"))
        .filter(pl.col("last_token_ns") > pl.col("first_token_ns"))
        .group_by(*LEVEL)
        .agg((1e9 * after_first / (pl.col("last_token_ns") - pl.col("first_token_ns"))).median())
        .sort(*LEVEL, nulls_last=True)
        .collect()
        .rows()
    )


def per_stream_pandas(folder: str) -> list[tuple]:
    rows = counting(folder, ["first_token_ns", "last_token_ns", "output_tokens", "chunk_tokens"])
    rows = rows[rows.last_token_ns > rows.first_token_ns]
    after_first = rows.output_tokens - rows.chunk_tokens.str[0]
    rows = rows.assign(speed=1e9 * after_first / (rows.last_token_ns - rows.first_token_ns))
    return listed(rows.groupby(LEVEL, dropna=False).speed.median())


# --- what failed, and where? ---


def failures_duckdb(folder: str) -> list[tuple]:
    return duckdb.sql(
        f"""select variant, concurrency, rate, outcome, count(*) as n
              from read_parquet({files(folder)}, union_by_name = true)
             where outcome not in ('ok', 'cut', 'unsent') group by all order by all"""
    ).fetchall()


def failures_polars(folder: str) -> list[tuple]:
    return (
        pl.scan_parquet(files(folder))
        .filter(~pl.col("outcome").is_in(["ok", "cut", "unsent"]))
        .group_by(*LEVEL, "outcome")
        .len()
        .sort(*LEVEL, "outcome", nulls_last=True)
        .collect()
        .rows()
    )


def failures_pandas(folder: str) -> list[tuple]:
    rows = pd.read_parquet(files(folder), columns=[*LEVEL, "outcome"])
    rows = rows[~rows.outcome.isin(["ok", "cut", "unsent"])]
    return listed(rows.groupby([*LEVEL, "outcome"], dropna=False).size())


# --- which kind of prompt is drafted best? (tokens an event; spec_verify_steps where the server tells it) ---


def by_kind_duckdb(folder: str) -> list[tuple]:
    return duckdb.sql(
        f"""select variant, prompt_kind, sum(output_tokens) / sum(len(chunk_ns)) as tokens_per_event
              from read_parquet({files(folder)}, union_by_name = true)
             where {COUNTS} group by all order by all"""
    ).fetchall()


def by_kind_polars(folder: str) -> list[tuple]:
    return (
        pl.scan_parquet(files(folder))
        .filter((pl.col("verdict") == "VALID") & pl.col("in_window") & (pl.col("outcome") == "ok"))
        .group_by("variant", "prompt_kind")
        .agg(pl.col("output_tokens").sum() / pl.col("chunk_ns").list.len().sum())
        .sort("variant", "prompt_kind")
        .collect()
        .rows()
    )


def by_kind_pandas(folder: str) -> list[tuple]:
    rows = counting(folder, ["prompt_kind", "output_tokens", "chunk_ns"])
    rows["events"] = rows.chunk_ns.str.len()
    sums = rows.groupby(["variant", "prompt_kind"])[["output_tokens", "events"]].sum()
    return listed(sums.output_tokens / sums.events)


# --- was the client in the way? (health.parquet: a row a second and worker) ---


def client_duckdb(folder: str) -> list[tuple]:
    return duckdb.sql(
        f"""select variant, concurrency, rate, max(list_max(loop_lag_ms)) as lag_max_ms, max(cpu_share) as cpu_max
              from read_parquet({files(folder, "health.parquet")}, union_by_name = true) group by all order by all"""
    ).fetchall()


def client_polars(folder: str) -> list[tuple]:
    return (
        pl.scan_parquet(files(folder, "health.parquet"))
        .group_by(*LEVEL)
        .agg(pl.col("loop_lag_ms").list.max().max(), pl.col("cpu_share").max())
        .sort(*LEVEL, nulls_last=True)
        .collect()
        .rows()
    )


def client_pandas(folder: str) -> list[tuple]:
    rows = pd.read_parquet(files(folder, "health.parquet"), columns=[*LEVEL, "loop_lag_ms", "cpu_share"])
    rows["lag_ms"] = rows.loop_lag_ms.map(lambda some: max(some, default=float("nan")))
    by = rows.groupby(LEVEL, dropna=False)
    return listed(by[["lag_ms", "cpu_share"]].max())


def listed(found: pd.DataFrame | pd.Series) -> list[tuple]:
    """A pandas answer as rows, with None for what is null."""
    lines = found.reset_index().itertuples(False, None)
    return [tuple(None if pd.isna(value) else value for value in line) for line in lines]


def counting(folder: str, names: list[str]) -> pd.DataFrame:
    """The rows that count, with their level and these columns."""
    judged = ["verdict", "in_window", "outcome"]
    rows = pd.read_parquet(files(folder), columns=[*LEVEL, *judged, *names])
    return rows[(rows.verdict == "VALID") & rows.in_window & (rows.outcome == "ok")].copy()


QUESTIONS = {
    "how long does the first token take?": (first_token_duckdb, first_token_polars, first_token_pandas),
    "how fast does one stream write?": (per_stream_duckdb, per_stream_polars, per_stream_pandas),
    "what failed, and where?": (failures_duckdb, failures_polars, failures_pandas),
    "which kind of prompt is drafted best?": (by_kind_duckdb, by_kind_polars, by_kind_pandas),
    "was the client in the way?": (client_duckdb, client_polars, client_pandas),
}

if __name__ == "__main__":
    for question, (ask, *_) in QUESTIONS.items():
        print(question)
        for row in ask(sys.argv[1]):
            print("  ", *row)
