"""A headless Chromium for tests of pages, driven by its own protocol over a pipe.

Neither a package nor a port is needed: Chromium reads commands from descriptor 3 and answers on
descriptor 4, in JSON that ends with a zero byte (--remote-debugging-pipe).

    with browser.started() as chromium:
        page = chromium.open(path.as_uri(), width=360, dark=True)
        page.run("document.title")
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 60.0  # seconds to wait for an answer before giving the browser up
KEYS = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}
OPTIONS = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # refused to root and in containers; the pages are our own
    "--disable-dev-shm-usage",  # containers have little of it
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    # Nothing outside this machine can be reached, whatever a page or the browser itself wants.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
]
# Descriptors are put in place by a program of its own: a function run after a fork is not safe
# beside the threads of torch.
LAUNCHER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)


def find() -> str | None:
    """The browser in BAYESDIV_BROWSER, which must be there, or the first one on the path."""
    told = os.environ.get("BAYESDIV_BROWSER")
    if told:
        if shutil.which(told) is None:
            raise FileNotFoundError(f"BAYESDIV_BROWSER must name a program, got {told}")
        return shutil.which(told)
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def started() -> "Iterator[Browser]":
    """A browser that ends with the block; the test is skipped where none is installed."""
    program = find()
    if program is None:
        pytest.skip("no Chromium or Chrome is installed (BAYESDIV_BROWSER may name one)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, Path(folder))
        try:
            yield browser
        finally:
            browser.close()


class Browser:
    """A running browser; `open` gives a page."""

    def __init__(self, program: str, folder: Path) -> None:
        (its_input, self._to), (self._from, its_output) = _pipe(), _pipe()
        self._log = folder / "log"
        command = [program, *OPTIONS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-c", LAUNCHER, str(its_input), str(its_output), *command],
                pass_fds=(its_input, its_output),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that its helpers end with it
            )
        os.close(its_input)
        os.close(its_output)
        self._buffer, self._number = b"", 0
        self._pages: dict[str, Page] = {}

    def open(self, url: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> "Page":
        """A page of its own at this address, loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.look(width=width, height=height, dark=dark)
        page.goto(url)
        return page

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The answer to one command of the protocol; events that come first are noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self._write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self._number:
                break
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def read(self) -> dict[str, Any]:
        """The next message; one that a page is concerned with is noted there."""
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], PATIENCE)[0]:
                raise TimeoutError(f"the browser is silent for {PATIENCE:.0f} s: {self._told()}")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise RuntimeError(f"the browser has ended: {self._told()}")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        if page := self._pages.get(message.get("sessionId", "")):
            page.note(message.get("method", ""), message.get("params", {}))
        return message

    def close(self) -> None:
        """End the browser, by force if it does not listen."""
        with suppress(OSError, RuntimeError):  # also where it has ended before
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def _write(self, content: bytes) -> None:
        while content:
            content = content[os.write(self._to, content) :]

    def _told(self) -> str:
        return self._log.read_text(errors="replace")[-2000:] or "it said nothing"


class Page:
    """One page.

    Attributes:
        requests: every address it has asked for, in order.
        problems: what its scripts have thrown, and errors and warnings of its console.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session, self._loads = browser, session, 0
        self.requests: list[str] = []
        self.problems: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol for this page."""
        return self._browser.call(method, self._session, **parameters)

    def note(self, method: str, event: dict[str, Any]) -> None:
        """Keep what a test may ask for."""
        if method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loads += 1
        elif method == "Runtime.exceptionThrown":
            self.problems.append(_thrown(event["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning"):
            self.problems.append(" ".join(str(a.get("value")) for a in event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.problems.append(event["entry"]["text"])

    def look(self, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Give the window a size in CSS pixels, and its person a liking for light or dark."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def goto(self, url: str) -> None:
        """Load an address and wait for it."""
        before = self._loads
        answer = self.call("Page.navigate", url=url)
        if "errorText" in answer:
            raise RuntimeError(f"{url}: {answer['errorText']}")
        if "loaderId" not in answer:  # only the part after # has changed
            return
        while self._loads == before:
            self._browser.read()

    def run(self, expression: str) -> Any:
        """The value of an expression in the page, awaited if it is a promise."""
        answer = self.call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
            userGesture=True,
        )
        if "exceptionDetails" in answer:
            raise AssertionError(_thrown(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression in the page is true."""
        end = time.monotonic() + PATIENCE
        while not self.run(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {expression}; problems: {self.problems}")
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """Press and release one of `KEYS`, as a person would."""
        for kind in ("keyDown", "keyUp"):
            code = {"windowsVirtualKeyCode": KEYS[key], "key": key, "code": key}
            if key == "Enter" and kind == "keyDown":  # without a text no button is pressed
                code["text"] = "\r"
            self.call("Input.dispatchKeyEvent", type=kind, **code)

    def serious(self, axe: str) -> list[Any]:
        """What axe, whose script is given, holds against the page with some weight."""
        self.run(axe)
        found = self.run(
            "axe.run().then(r => r.violations.map(v => "
            "[v.impact, v.id, v.nodes.slice(0, 3).map(n => n.html.slice(0, 150))]))"
        )
        return [each for each in found if each[0] in ("serious", "critical")]

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of the whole page, or of what the window shows."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(answer["data"]))

    def pdf(self, path: Path) -> None:
        """The page as it would be printed."""
        answer = self.call("Page.printToPDF", printBackground=False)
        Path(path).write_bytes(base64.b64decode(answer["data"]))


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are out of the way of descriptors 3 and 4."""
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


def _thrown(details: dict[str, Any]) -> str:
    return details.get("exception", {}).get("description") or details["text"]
