"""What a dry run prints: for each run the command that would start its server, what runs, and what would be checked.

Owns wording only. Nothing is started, asked or looked up here: neither a cluster, nor a model, nor an engine is needed.
"""

import shlex
from collections.abc import Iterator, Sequence

from loadgen.asked import Run
from loadgen.config import Config, levels
from loadgen.report import run_line
from loadgen.words import clean
from server.claims import CAP
from server.effects import watched
from server.flags import in_words
from server.proof import checks
from server.spec import STARTED, ServerSpec, version_of
from server.variant import argv, mode_of, notes, resolved_args, shown_environment

HOST, PORT = "127.0.0.1", 30000  # what SGLang would take; a real start picks a free port


def dry_run(runs: Sequence[tuple[Run, ServerSpec]]) -> str:
    """Every run with its command; nothing is started."""
    return clean("\n\n".join("\n  ".join(_run(run, spec)) for run, spec in runs))


def shell_line(spec: ServerSpec, words: Sequence[str]) -> str:
    """A server's command line as it would be typed, its own variables before it."""
    shown = [f"{name}={shlex.quote(value)}" for name, value in shown_environment(spec, []).items()]
    return " ".join([*shown, shlex.join(words)])


def _run(run: Run, spec: ServerSpec) -> Iterator[str]:
    conf = run.config
    yield run_line(run, spec)
    if run.repeat:
        return  # all of it stands with the run that it repeats
    if spec.engine == "external":
        yield " and ".join(f"a server that is running at {url}" for url in spec.urls)
    else:
        yield shell_line(spec, argv(spec, host=HOST, port=PORT, seed=conf.block))
        yield from (f"note: {note}" for note in notes(spec))
        yield f"runs: {_meant(spec)}"
    most = _most(conf)
    if warned := cap_warning(conf, spec):
        yield f"note: {warned}"
    yield "checked in /server_info: " + ", ".join(f"{flag} = {value}" for flag, value in checks(spec, most))
    if spec.engine != "external" and (flags := watched(spec)):
        yield "its log is held against: " + ", ".join(flags)


def _most(conf: Config) -> int:
    """The highest concurrency asked for."""
    return max((level.concurrency or 1 for level in levels(conf.load)), default=1)


def cap_warning(conf: Config, spec: ServerSpec) -> str | None:
    """Where the variant itself caps running requests below the load, what will become of its Points."""
    cap = (spec.args if spec.engine in ("vllm", "external") else resolved_args(spec)).get(CAP)
    if spec.engine == "external" or cap is None or cap >= _most(conf):
        return None
    return f"{spec.variant}: {CAP}={cap} is below the load of {_most(conf)}: Points above {cap} will be INVALID"


def _meant(spec: ServerSpec) -> str:
    """Engine, version and how it speculates; of which version the flags are where none was named."""
    flags_by_version = spec.engine != "vllm"
    version = spec.version or (in_words(version_of(spec)) if flags_by_version else "as installed")
    words = f"{spec.engine} {version}, spec_mode {mode_of(spec)}"
    if spec.version is None and spec.engine in STARTED and flags_by_version:
        words += "; engine.version is not set: a start reads the installed one, whose flags are then passed"
    return words
