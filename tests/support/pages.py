"""Pages as a browser would read them: what is open, what is fetched, what runs."""

import base64
import hashlib
import html.parser
import re
from dataclasses import dataclass, field


@dataclass
class ReadPage(html.parser.HTMLParser):
    """Counts tags, and remembers what the page would fetch and run."""

    seen: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    handlers: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    data: dict[str, str] = field(default_factory=dict)
    text: str = ""
    policy: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._script: tuple[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        self.seen.append(tag)
        self.fetched += [known[name] for name in ("src", "href", "srcset", "action") if name in known]
        self.handlers += [name for name in known if name.startswith("on")]
        if known.get("http-equiv") == "Content-Security-Policy":
            self.policy = known["content"]
        if tag == "script":
            self._script = (known.get("type", ""), known.get("id", ""))
        if tag not in ("meta", "wbr"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self._script = None if tag == "script" else self._script

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)  # of an svg

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.text += data.replace("\u00a0", " ")
        elif self._script[0] == "application/json":
            self.data[self._script[1]] = self.data.get(self._script[1], "") + data
        else:
            self.scripts.append(data)


def read_page(page: str) -> ReadPage:
    """A page that is whole, fetches nothing and runs only what its policy names."""
    found = ReadPage()
    found.feed(page)
    found.close()
    assert found._open == []
    assert found.fetched == []
    assert found.handlers == []
    assert not re.search(r"url\(|@import", page)
    assert "default-src 'none'" in found.policy
    allowed = re.findall(r"'sha256-([^']+)'", found.policy)
    assert [_hash(each) for each in found.scripts] == allowed
    assert "prefers-color-scheme: dark" in page
    return found


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
