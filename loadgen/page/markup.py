"""HTML and SVG as trees: elements and texts in, one text out.

Pure. Escaping is the standard library's serialiser's, so no place that shows a name or an error can forget it. Owns
what a page may fetch: nothing.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any
from xml.etree.ElementTree import Element, tostring

from loadgen.words import clean

# Whatever stands between two tags; None and False are left out.
Child = Any


def tag(name: str, *children: Child, **attributes: Any) -> Element:
    """An element. Attributes as in Python: `class_`, `aria_label`; None leaves one out, True is a bare one."""
    found = Element(name, {_name(key): _value(value) for key, value in attributes.items() if _there(value)})
    _fill(found, children)
    return found


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _there(value: Any) -> bool:
    return value is not None and value is not False


def _value(value: Any) -> str:
    """A coordinate to a tenth of a pixel, anything else as a text without control characters."""
    if value is True:
        return ""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else clean(value)


def _fill(found: Element, children: Iterable[Child]) -> None:
    for child in children:
        if isinstance(child, Element):
            found.append(child)
        elif isinstance(child, Iterable) and not isinstance(child, str | Mapping):
            _fill(found, child)
        elif _there(child):
            _add_text(found, clean(child))


def _add_text(found: Element, text: str) -> None:
    """After the last child where there is one: the tree keeps texts on the elements before them."""
    if len(found):
        found[-1].tail = (found[-1].tail or "") + text
    else:
        found.text = (found.text or "") + text


def key(text: str) -> str:
    """A text as what an id may be."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def page(title: str, style: str, script: str, body: Iterable[Child]) -> str:
    """A whole document that fetches nothing and runs nothing but `script`: its policy names both by their hashes."""
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", title),
        _raw("style", style),
    )
    whole = tag("html", head, tag("body", *body, _raw("script", script)), lang="en")
    return "<!doctype html>\n" + tostring(whole, encoding="unicode", method="html") + "\n"


def _raw(name: str, text: str) -> Element:
    """Our own style or script: never a text of a file, for HTML does not escape there."""
    assert "</" not in text, f"a {name} would end too early"
    found = Element(name)
    found.text = text
    return found


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
