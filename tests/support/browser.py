"""A browser that tests drive: Chromium, its messages and requests, keys, and axe-core."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.support.paths import PROJECT

DRIVER = "/usr/bin/chromedriver"
IS_REQUIRED = os.environ.get("RLDS_TEST_BROWSER") == "required"
AXE = "axe-core@4.14.1"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"),
    *("--force-device-scale-factor=1", "--disable-background-networking", "--no-first-run"),
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    # What the browser asks its maker by itself, so that what is counted is of pages.
    *("--disable-component-update", "--no-default-browser-check"),
    "--disable-features=AutofillServerCommunication,NetworkTimeServiceQuerying,OptimizationHints",
    *(f"--{of}-url=http://127.0.0.1:1" for of in ("gaia", "gcm-checkin", "google-base")),
)
FOCUSABLE = "a[href], button, input, select, summary, [tabindex='0']"


def lacking(reason: str) -> None:
    """Skip the test that lacks something; where browser tests are required it fails."""
    (pytest.fail if IS_REQUIRED else pytest.skip)(f"{reason}. To get it, run: make browser")


class Browser:
    """Chromium without a window.

    Args:
        proxy: what all requests go through but those to ``own``, also those to this machine.
        own: a host and port.
    """

    def __init__(self, proxy: str = "", own: str = "") -> None:
        options = webdriver.ChromeOptions()
        through = (f"--proxy-server={proxy}", f"--proxy-bypass-list=<-loopback>;{own}")
        for option in (*OPTIONS, *(through if proxy else ())):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.driver.set_script_timeout(30)

    def look(self, width: int = 1440, scheme: str = "light", height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.tell("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.tell("Emulation.setEmulatedMedia", features=features)

    def tell(self, command: str, **values: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, values)

    def open(self, address: str) -> None:
        """Show an address; messages and requests of earlier ones are forgotten."""
        self.driver.get("about:blank")
        self.messages(), self.requests()
        self.driver.get(address)

    def run(self, script: str, *values: Any) -> Any:
        return self.driver.execute_script(script, *values)

    def wait(self, condition: str, *values: Any) -> Any:
        """Return what an expression of ``values`` is once it is true."""
        return self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1], values = [...arguments];"
            f"const look = () => {{ const found = {condition};"
            "if (found) done(found); else setTimeout(look, 10); }; look();",
            *values,
        )

    def messages(self) -> list[str]:
        """Return what the console has had since it was asked last."""
        return [each["message"] for each in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        events = (json.loads(each["message"]) for each in self.driver.get_log("performance"))
        return [
            each["message"]["params"]["request"]["url"]
            for each in events
            if each["message"]["method"] == "Network.requestWillBeSent"
        ]

    def press(self, key: str, code: int, text: str = "") -> None:
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.tell(
            "Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **about
        )
        self.tell("Input.dispatchKeyEvent", type="keyUp", **about)

    def unreached(self) -> list[str]:
        """Return what the Tab key does not reach, or reaches without anyone seeing it."""
        self.run(
            "window.wanted = new Set([...document.querySelectorAll(arguments[0])].filter((each) =>"
            "each.checkVisibility() && !each.disabled)); document.activeElement.blur();",
            FOCUSABLE,
        )
        hidden = []
        for _ in range(self.run("return wanted.size") + 2):
            self.press("Tab", 9)
            if shown := self.run(
                "const one = document.activeElement, style = getComputedStyle(one);"
                "wanted.delete(one);"
                "const isSeen = style.outlineStyle !== 'none' && style.outlineWidth !== '0px';"
                "return one === document.body || isSeen ? '' : one.outerHTML.slice(0, 200);"
            ):
                hidden.append(shown)
        left: list[str] = self.run("return [...wanted].map((each) => each.outerHTML.slice(0, 200))")
        return left + hidden

    def violations(self, axe: str) -> list[str]:
        """Return what axe-core finds against levels A and AA."""
        self.run(axe)
        found = self.driver.execute_async_script(
            "axe.run(document, {runOnly: arguments[0]}).then(arguments[1]);", RULES
        )
        return [
            f"{each['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
            for each in found["violations"]
            for node in each["nodes"]
        ]


@contextmanager
def started_browser(proxy: str = "", own: str = "") -> Iterator[Browser]:
    if not Path(DRIVER).exists():
        lacking(f"There is no {DRIVER}")
    browser = Browser(proxy, own)
    try:
        yield browser
    finally:
        browser.driver.quit()


def axe_source() -> str:
    """Return the script of axe-core, which is fetched once and kept in build/."""
    kept = PROJECT / "build" / f"{AXE}.js"
    if not kept.exists():
        if shutil.which("npm") is None:
            lacking("There is no npm, which fetches axe-core")
        kept.parent.mkdir(exist_ok=True)
        command = ["npm", "pack", AXE, "--silent", "--pack-destination", str(kept.parent)]
        if subprocess.run(command, capture_output=True, check=False, timeout=120).returncode:
            lacking(f"npm cannot fetch {AXE}")
        archive = kept.parent / f"{AXE.replace('@', '-')}.tgz"
        with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as files:
            script = files.extractfile("package/axe.min.js")
            assert script is not None
            kept.write_bytes(script.read())
        archive.unlink()
    return kept.read_text(encoding="utf-8")
