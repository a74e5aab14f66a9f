"""`python -m loadgen`: Hydra composes, our own loop runs. The only module that knows Hydra.

The function under hydra.main only collects; when Hydra has returned, all runs are checked before anything starts, and
`grid` measures them. Results go to stdout, progress and complaints to stderr, the exit code says how it ended.
"""

import contextlib
import dataclasses
import importlib.resources
import importlib.util
import io
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any, cast

import hydra
from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, OverrideParseException
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from loadgen import checks, claimed, overrides, secret
from loadgen.asked import Collected, Run
from loadgen.errors import FULL, ConfigError, Interrupted, LoadgenError, StorageError

# Hydra's own file has one key more than its schema.
HYDRA_KEYS = {field.name for field in dataclasses.fields(HydraConf)} | {"env"}
SWEEP_RECORD = "multirun.yaml"
FOLDER_KEYS = ("hydra.run.dir=", "hydra.sweep.dir=")
# It composes all runs of a sweep to find mistakes before the first of them starts. Ours start nothing: composing them
# once is enough, and a grid of a hundred takes half a minute less.
Sweeper.validate_batch_is_legal = lambda *_: None  # type: ignore[method-assign]


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv`; the exit code (see README)."""
    try:
        _same_checkout()
        collected = compose(overrides.prepare(sys.argv[1:] if argv is None else argv))
        if not collected.runs:
            return 0
        try:
            from loadgen import grid  # here: help and most refusals wait neither for Ray nor for what measures

            code = grid.run_all(collected)
            sys.stdout.flush()
            return code
        finally:  # a dry run and a late refusal use none of the folders that Hydra made
            claimed.remove_empty(collected.root, [run.folder for run in collected.runs])
    except LoadgenError as error:
        print(f"loadgen: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if error.errno not in FULL:
            raise
        return _no_room(error)
    except KeyboardInterrupt:  # before anything was started; afterwards signals are heard
        return Interrupted(signal.SIGINT).exit_code


def _no_room(error: OSError) -> int:
    """What is left to say where not even stdout takes what it is given; the exit code."""
    where = error.filename or "stdout"
    print(f"loadgen: cannot write {where}: {error.strerror}; make room; what was measured is kept", file=sys.stderr)
    with contextlib.suppress(OSError, ValueError):  # what stdout still holds would be tried again at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return StorageError.exit_code


def compose(arguments: list[str]) -> Collected:
    """Have Hydra compose every run of the command line and check each. Raises ConfigError; starts nothing."""
    found: list[tuple[Any, Path]] = []
    about: dict[str, Any] = {}
    records = _sweep_records()

    @hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")
    def collect(composed: DictConfig) -> None:
        hydra_config = HydraConfig.get()
        sweep = hydra_config.mode is not None and hydra_config.mode.name == "MULTIRUN"
        # Relative to where the command was typed: hydra.job.chdir=true has changed the folder by now.
        about["root"] = Path(hydra_config.runtime.cwd) / (hydra_config.sweep.dir if sweep else hydra_config.run.dir)
        about["unknown"] = sorted({*map(str, cast(DictConfig, hydra_config))} - HYDRA_KEYS)
        about["chosen"] = any(text.lstrip("+").startswith(FOLDER_KEYS) for text in hydra_config.overrides.hydra)
        found.append((OmegaConf.to_container(composed, resolve=True), Path(hydra_config.runtime.output_dir)))

    try:
        try:
            _call(collect, arguments)
        finally:
            swept = _forget_sweep(records, about.get("root"))
        if about.get("unknown"):
            raise ConfigError(f"there is no key hydra.{about['unknown'][0]}; see python -m loadgen --cfg hydra")
        runs = [_run(composed, folder) for composed, folder in found]
        for composed, _ in found:
            secret.refuse_secrets(composed)
    except ConfigError:
        claimed.remove_empty(swept, [folder for _, folder in found])
        raise
    return Collected(tuple(runs), about.get("root", Path()), about.get("chosen", False), shell_line(arguments))


def _call(collect: Any, arguments: list[str]) -> None:
    """Call Hydra's function with its complaints raised instead of printed, and turned into one sentence."""
    before, sys.argv = sys.argv, ["loadgen", *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):  # its parser of options prints a page of usage before it gives up
            collect()
        sys.stderr.write(said.getvalue())
    except OverrideParseException as error:
        raise ConfigError(overrides.not_read(error.override)) from None
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # it raises bare ones for some groups
        raise ConfigError(overrides.complaint(str(error))) from None
    except SystemExit as error:
        if error.code:
            reason = said.getvalue().strip().rpartition("error: ")[2]
            raise ConfigError(f"the command line cannot be read: {reason}; see python -m loadgen --help") from None
    except OSError as error:
        raise ConfigError(
            f"the results' folder cannot be made ({error}); choose another with hydra.run.dir=..."
        ) from None
    finally:
        sys.argv = before


def _forget_sweep(before: set[Path], root: Path | None) -> Path | None:
    """The folder of the sweep, without the record that Hydra put there unchecked; our own says all of it."""
    new = [*(_sweep_records() - before), *([root / SWEEP_RECORD] if root else [])]
    for record in new:
        record.unlink(missing_ok=True)
    return new[-1].parent.absolute() if new else None


def _sweep_records() -> set[Path]:
    return set(Path().glob(f"outputs/*/*/{SWEEP_RECORD}"))


def _run(composed: Any, folder: Path) -> Run:
    return Run(checks.parse(composed, variants()), folder.absolute())


def variants() -> list[str]:
    """The names of the shipped variants."""
    files = importlib.resources.files("conf.variant").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def shell_line(arguments: list[str]) -> str:
    """The command as it would be typed."""
    return shlex.join(["python", "-m", "loadgen", *arguments])


def _same_checkout() -> None:
    """`python -m` puts the working folder first on the path: a server/ or conf/ there would be taken for ours."""
    ours = Path(__file__).resolve().parent.parent
    for name in ("server", "conf"):
        found = importlib.util.find_spec(name)
        places = [] if found is None else [found.origin, *(found.submodule_search_locations or [])]
        theirs = Path(next((place for place in places if place), "nowhere")).resolve()
        if ours not in theirs.parents:
            raise ConfigError(f"{name} was found at {theirs}, not beside {ours / 'loadgen'}; run from another folder")


if __name__ == "__main__":
    sys.exit(main())
