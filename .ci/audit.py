"""Hold what is installed against the known vulnerabilities, where their list can be had: exit 1 when one is known.

Run by the interpreter whose packages are looked at. pip-audit comes into a folder of its own, so that it is not among
them. Without an answer nothing was checked, which is said and is no failure.
"""

import json
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path
from typing import Any


def told(folder: Path) -> list[dict[str, Any]]:
    """What pip-audit says of each package; nothing where it cannot be had or asks in vain."""
    try:
        venv.create(folder, with_pip=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    installed = subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", "pip-audit"], check=False)
    if installed.returncode:
        return []
    quiet = ("--progress-spinner", "off", "--skip-editable", "--format", "json", "--cache-dir", folder / "cache")
    words = [folder / "bin/pip-audit", *quiet, "--path", sysconfig.get_path("purelib")]
    found = subprocess.run(words, check=False, capture_output=True, text=True)
    try:
        return list(json.loads(found.stdout)["dependencies"])
    except (ValueError, KeyError):
        return []


def main() -> int:
    """Print what was checked and what was found."""
    with tempfile.TemporaryDirectory() as folder:
        packages = told(Path(folder))
    # A list that knows none of the packages is no list: a mirror without it answers so.
    checked = [package for package in packages if "vulns" in package]
    if not checked:
        print("the list of known vulnerabilities is not reachable: not checked")
        return 0
    print(f"{len(checked)} packages held against the known vulnerabilities")
    bad = [(package, one) for package in checked for one in package["vulns"]]
    for package, one in bad:
        fixed = ", ".join(one.get("fix_versions") or []) or "no version yet"
        print(f"{package['name']} {package['version']}: {one['id']}, repaired in {fixed}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
