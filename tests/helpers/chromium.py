"""Headless Chromium for tests, driven over its debugging pipe: nothing to install but the browser itself."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chrome-headless-shell")


def find_chromium():
    """The path of an installed browser, or None; $TAGWISE_CHROMIUM names one that is not on the path."""
    given = os.environ.get("TAGWISE_CHROMIUM")
    return given or next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One page. Commands and events are those of the DevTools protocol; ``requests`` holds every URL asked for."""

    def __init__(self, binary, timeout=60):
        self.timeout, self.requests, self.messages = timeout, [], []
        self._number, self._buffer = 0, b""
        self._profile = tempfile.mkdtemp(prefix="tagwise-chromium-")
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()

        def browser_pipes():
            # The browser reads commands from descriptor 3 and answers on 4. The pipes may have these numbers already,
            # the other way round even: first out of the way, then into place.
            first, second = os.dup(commands), os.dup(answers)
            high, higher = os.dup2(first, 50), os.dup2(second, 51)
            os.dup2(high, 3)
            os.dup2(higher, 4)

        self._process = subprocess.Popen(
            [
                binary,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--no-first-run",
                "--remote-debugging-pipe",
                f"--user-data-dir={self._profile}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=browser_pipes,
            close_fds=False,
        )
        os.close(commands)
        os.close(answers)
        self._session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.send(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def send(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _receive(self):
        end = time.monotonic() + self.timeout
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._read, 1 << 16)
            assert part, "the browser has gone"
            self._buffer += part
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(raw)
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        if message.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.messages.append(message["params"])
        return message

    def open(self, url):
        self.send("Page.navigate", url=url)
        end = time.monotonic() + self.timeout
        while self.run("document.readyState") != "complete" or self.run("location.href") == "about:blank":
            assert time.monotonic() < end, "the page does not load"
            time.sleep(0.02)

    def run(self, script):
        """The value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def type(self, text):
        """What a person types into the element that has the focus."""
        self.send("Input.insertText", text=text)

    def view(self, width, height, *, dark=False):
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self):
        """PNG of what is in view."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])
