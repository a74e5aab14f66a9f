"""Print what ran, and fail when anything failed, nothing ran, or a test was skipped for a tool that CI installs."""

import sys
import xml.etree.ElementTree as ElementTree

TOOLS = ("gcc", "ip", "taskset", "chromium", "unshare", "nsenter")


def main(paths: list[str]) -> int:
    bad = False
    for path in paths:
        suite = next(ElementTree.parse(path).iter("testsuite"))  # noqa: S314 - written by pytest a moment ago
        counts = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
        print(path.rpartition("/")[2], *(f"{name} {count}" for name, count in counts.items()), f"{suite.get('time')} s")
        for case in suite.iter("testcase"):
            for skipped in case.iter("skipped"):
                message = str(skipped.get("message"))
                print(f"  skipped: {case.get('classname')}.{case.get('name')}: {message}")
                bad |= any(f"{tool} is missing" in message for tool in TOOLS)
        bad |= counts["tests"] == 0 or any(counts[name] for name in ("failures", "errors"))
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
