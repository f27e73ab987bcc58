"""A headless Chromium, driven over its debugging pipe: JSON messages that end with a zero byte."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

# The browser reads commands from descriptor 3 and writes to 4.
_WIRE = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(text), fcntl.F_DUPFD, 10) for text in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def chromium() -> str | None:
    """The browser's program, or None where none is installed."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


class Browser:
    """One page of a browser without a network.

    Args:
        program: the browser.
        profile: a folder for what it keeps.
    """

    def __init__(self, program: str, profile: Path) -> None:
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        options += ["--remote-debugging-pipe", f"--user-data-dir={profile}"]
        options += ["--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WIRE, str(to_read), str(to_write), program, *options],
            pass_fds=(to_read, to_write),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.number = b"", 0  # of what was read, and of the last command
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []
        pages = self.send("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        found = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self.session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        self.session = None
        self.send("Browser.close")
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            part = os.read(self.read_end, 1 << 16)
            assert part, "the browser ended"
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command; events that come meanwhile are kept."""
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.write_end, json.dumps(command).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self.number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    def wait(self, event: str) -> None:
        """Until an event comes."""
        while not any(message.get("method") == event for message in self.events):
            self.events.append(self._message())

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a file."""
        for url in ("about:blank", path.as_uri() + fragment):  # a new fragment alone loads nothing
            self.events.clear()
            self.send("Page.navigate", url=url)
            self.wait("Page.loadEventFired")

    def complaints(self) -> list[dict[str, Any]]:
        """Errors that were raised or logged, and requests for anything but pages themselves."""
        wrong = ("Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed")
        found = [event for event in self.events if event.get("method") in wrong]
        for event in self.events:
            if event.get("method") == "Network.requestWillBeSent":
                found += [event] if event["params"]["type"] != "Document" else []
        return found

    def value(self, expression: str) -> Any:
        """What an expression of the page's script gives, or its promise comes to."""
        found = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def point(self, selector: str, *, click: bool = False) -> None:
        """Move the mouse to the middle of an element; click it if asked."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{element}.scrollIntoView({{block:'center',inline:'center'}})")
        # What has come into view is laid out in the next frame, and may move what is below it.
        self.value("new Promise(r=>requestAnimationFrame(()=>requestAnimationFrame(()=>r(1))))")
        x, y = self.value(
            f"(()=>{{const b={element}.getBoundingClientRect();"
            "return [b.x+b.width/2,b.y+b.height/2]})()"
        )
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        if click:
            for kind in ("mousePressed", "mouseReleased"):
                self.send(
                    "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
                )

    def size(self, width: int, height: int) -> None:
        """Set the window's size."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def theme(self, name: str) -> None:
        """Ask for the light or the dark theme, as a reader's system does."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self.send("Emulation.setEmulatedMedia", features=[feature])
