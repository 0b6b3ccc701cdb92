"""A page of the system's Chromium, driven by playwright."""

import shutil
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect, sync_playwright

# Milliseconds that a busy machine has for what takes a moment elsewhere.
PATIENCE = 180_000
expect.set_options(timeout=PATIENCE)

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium_page(width=1280, height=900):
    """An empty page; skips the test if no Chromium is installed."""
    executable = next((path for name in NAMES if (path := shutil.which(name))), None)
    if executable is None:
        pytest.skip(f"no Chromium is installed: none of {', '.join(NAMES)} is on the path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(PATIENCE)
        yield page
        browser.close()
