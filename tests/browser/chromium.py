"""A headless Chromium over its debugging pipe: pages are opened at a width, asked questions and photographed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")
PATIENCE = 30.0
# Puts the two ends of the pipe where Chromium expects them, whatever their numbers are, and becomes Chromium.
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

# Text is clipped where an ancestor that does not scroll ends before it does, or the page would have to scroll sideways.
CLIPPED = """
(() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const shown = {opacityProperty: true, visibilityProperty: true};
    if (!node.data.trim() || !node.parentElement.checkVisibility(shown)) continue;
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (box.width <= 1 || box.right <= 0 || box.left >= innerWidth) continue;  // for screen readers, or in a drawer
    let end = innerWidth;
    for (let part = node.parentElement; part; part = part.parentElement) {
      const style = getComputedStyle(part);
      if (/auto|scroll/.test(style.overflowX) && part !== document.documentElement && part !== document.body) {
        end = Infinity;
        break;
      }
      if (/hidden|clip/.test(style.overflowX)) end = Math.min(end, part.getBoundingClientRect().right);
    }
    if (box.right > end + 1) found.push(`${node.parentElement.tagName}: ${node.data.trim().slice(0, 60)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push('the page is wider than the window');
  return found;
})()
"""
# A dollar in code is a dollar; elsewhere it is a formula that was not rendered.
RAW_MATHEMATICS = r"""
(() => {
  const text = document.body.cloneNode(true);
  for (const part of text.querySelectorAll('pre, code, script, style, annotation')) part.remove();
  const raw = /\.\. math::|:math:|\$|\\(?:min|sup|frac|lambda|theta)/g;
  return [...text.textContent.matchAll(raw)].map(found => found[0]);
})()
"""
MISSING_IMAGES = """
(async () => {
  for (const image of document.images) image.loading = 'eager';
  await Promise.all([...document.images].map(image => image.decode().catch(() => null)));
  return [...document.images].filter(image => !image.naturalWidth).map(image => image.src.slice(0, 100));
})()
"""

# A picture that scrolls is read by nobody: it must fit the window.
CUT_IMAGES = """
[...document.images].filter(image => image.checkVisibility() && image.getBoundingClientRect().right > innerWidth + 1)
  .map(image => image.alt)
"""


def find_chromium() -> str | None:
    """Return the path of a Chromium, the one named by the variable CHROMIUM first."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A running Chromium; a context manager."""

    def __init__(self, command: str, profile: Path) -> None:
        # Chromium reads commands from descriptor 3 and answers on 4, messages end with a zero byte.
        child_in, self._out = os.pipe()
        self._in, child_out = os.pipe()
        flags = [*FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, str(child_in), str(child_out), command, *flags],
            pass_fds=(child_in, child_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(child_in)
        os.close(child_out)
        self._buffer, self._number = b"", 0
        self._to_page: dict[str, str] = {}
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
            self._to_page = {"sessionId": attached["sessionId"]}
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
            self.call("Network.setCacheDisabled", cacheDisabled=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=PATIENCE)
        os.close(self._out)
        os.close(self._in)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, to the page once there is one, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params} | self._to_page
        os.write(self._out, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda event: event.get("id") == self._number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, url: str, width: int, height: int = 900) -> None:
        """Open a page in a window of that width and wait until everything on it is loaded."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self._events.clear()
        self.call("Page.navigate", url=url)
        if not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._wait(lambda event: event.get("method") == "Page.loadEventFired")
        self.evaluate("new Promise(done => setTimeout(done, 300))")  # what scripts of the page do once it is there

    def evaluate(self, script: str) -> Any:
        """Return the value of a script on the open page."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def errors(self) -> list[str]:
        """Return what the console of the open page complains about, and the requests that failed."""
        found = []
        for event in self._events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"].get("text")))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
                found.append(str(params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        return found

    def requests(self) -> list[str]:
        """Return the addresses that the open page asked for."""
        sent = [event["params"] for event in self._events if event.get("method") == "Network.requestWillBeSent"]
        return [str(params["request"]["url"]) for params in sent]

    def photograph(self, path: Path) -> None:
        """Write a picture of the open page."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _wait(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first message that is wanted; all before it are kept as events."""
        until = time.monotonic() + PATIENCE
        while True:
            while b"\0" not in self._buffer:
                ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
                if not ready:
                    raise TimeoutError(f"Chromium did not answer within {PATIENCE:g} seconds.")
                piece = os.read(self._in, 1 << 16)
                if not piece:
                    raise OSError("Chromium ended.")
                self._buffer += piece
            text, _, self._buffer = self._buffer.partition(b"\0")
            message: dict[str, Any] = json.loads(text)
            if is_wanted(message):
                return message
            self._events.append(message)
