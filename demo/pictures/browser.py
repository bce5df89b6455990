"""Chromium without a window, driven by Selenium; what it does not find is an error that says so."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..workspace import CHECKOUT, DemoError

T = TypeVar("T")

#: Where ``make screenshots`` installs Selenium and Pillow: they are for nothing else.
LIBRARY = CHECKOUT / "build" / "browser"
#: Seconds. Nothing that is waited for takes as long.
_PATIENCE = 90.0
#: Bytes of a picture that docs can afford.
_LARGEST = 150_000


@dataclass(frozen=True)
class Browser:
    """One window."""

    driver: Any
    folder: Path

    def open(self, address: str) -> None:
        self.driver.get(address)

    def wait(self, what: str, found: Callable[[], T]) -> T:
        """Wait until something is there, and return it.

        :raises DemoError: it does not come.
        """
        from selenium.common.exceptions import WebDriverException

        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(WebDriverException):
                result = found()
                if result:
                    return result
            time.sleep(0.05)  # Between two looks.
        self.driver.save_screenshot(str(self.folder / "missing.png"))
        raise DemoError(
            f"The browser waited for {what}, and shows {self.driver.current_url} instead "
            f"(see {self.folder / 'missing.png'})."
        )

    def element(self, selector: str, text: str = "") -> Any:
        """The first element of a CSS selector that shows a text."""

        def found() -> Any:
            elements = self.driver.find_elements("css selector", selector)
            return next((it for it in elements if text in it.text), None)

        return self.wait(f"{selector} with {text!r}" if text else selector, found)

    def text(self, selector: str = "main") -> str:
        return self.element(selector).text

    def click(self, selector: str, text: str = "") -> None:
        """Scroll to an element and click it."""
        element = self.element(selector, text)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        self.wait(f"{selector} to take a click", lambda: element.click() is None)

    def enter_frame(self) -> None:
        """Into the page that Airflow shows in its frame."""
        self.driver.switch_to.default_content()
        frame = self.element("iframe")
        self.driver.switch_to.frame(frame)
        self.wait(
            "the page in its frame", lambda: self.driver.find_elements("css selector", "main")
        )

    def leave_frame(self) -> None:
        self.driver.switch_to.default_content()

    def expect(self, selector: str, *texts: str) -> None:
        """See that an element comes to show all of these.

        :raises DemoError: it does not.
        """
        for text in texts:
            self.element(selector, text)

    def resize(self, width: int, height: int) -> None:
        self.driver.set_window_size(width, height)

    def theme(self, name: str) -> None:
        """What Airflow's own switch keeps."""
        self.driver.execute_script("localStorage.setItem('theme', arguments[0])", name)
        self.driver.refresh()

    def picture(self, name: str) -> None:
        """Save what the window shows.

        :raises DemoError: the picture is too large for docs.
        """
        from PIL import Image

        path = self.folder / f"{name}.png"
        self.driver.save_screenshot(str(path))
        with Image.open(path) as full:
            # Plain areas and text: 128 colours are enough, and a third of the bytes.
            full.convert("RGB").quantize(128).save(path, optimize=True)
        if path.stat().st_size > _LARGEST:
            raise DemoError(f"{path} has {path.stat().st_size:,} bytes, more than {_LARGEST:,}.")


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A window, closed afterwards.

    :param folder: where pictures go.
    :raises DemoError: Selenium or Chromium is not there.
    """
    sys.path.append(str(LIBRARY))
    chromium, chromedriver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if chromium is None or chromedriver is None:
        raise DemoError("There is no chromium or chromedriver: apt-get install chromium-driver.")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"):
        options.add_argument(flag)
    options.add_argument("--force-prefers-reduced-motion")
    driver = webdriver.Chrome(options, webdriver.ChromeService(chromedriver))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield Browser(driver, folder)
    finally:
        driver.quit()
