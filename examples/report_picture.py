"""docs/report.png: the page of the records in results/quick-x0.6.tar.gz, as a browser shows it."""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from acc_rl.commands.main import main

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        main(["report", "results/quick-x0.6.tar.gz", "--out", folder])
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 1000}, device_scale_factor=1.5)
        page.goto((Path(folder) / "index.html").as_uri())
        page.wait_for_selector("canvas, svg")
        page.wait_for_timeout(2000)  # until all charts are drawn
        page.evaluate("document.querySelector('[data-panel^=tasks]').closest('section').scrollIntoView()")
        page.screenshot(path="docs/report.png")
        browser.close()
