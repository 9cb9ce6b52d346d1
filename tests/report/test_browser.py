"""The page in a real Chromium, opened from disk."""

import shutil
import threading

import pytest
import synthetic

from acc_rl.report.page import write
from acc_rl.report.serve import Watcher, server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium found (apt-get install chromium)")
sync_api = pytest.importorskip("playwright.sync_api")

LINES = "document.querySelectorAll('[data-panel^=\"tasks\"] .mark-line path').length"


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        # the sandbox needs user namespaces, which containers lack; the page is our own
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def index(study, tmp_path_factory):
    return write([study], tmp_path_factory.mktemp("report"))[0]


@pytest.fixture(scope="module")
def opened(browser, index):
    """The page after all charts are drawn, what it asked the network for and what it complained about"""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.asked, page.complaints = [], []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(index.as_uri())
    page.wait_for_function("document.documentElement.dataset.drawn")
    yield page
    page.close()


def test_it_opens_from_disk_draws_and_asks_for_nothing(opened, index):
    assert opened.asked == [index.as_uri()]
    assert opened.complaints == []
    panels = opened.locator("[data-panel]").count()
    assert panels > 10
    assert opened.locator("[data-panel] svg.marks").count() == panels
    marks = ".mark-line path, .mark-rule line, .mark-rect path"
    drawn = opened.evaluate(f"[...document.querySelectorAll('[data-panel]')].map(e => !!e.querySelector('{marks}'))")
    assert all(drawn)
    assert opened.evaluate(LINES) == 2 * 4  # two tasks, four algorithms


def test_the_legend_hides_an_algorithm_everywhere(opened):
    button = opened.locator(".legend button[data-series=sac]")
    rows = opened.locator("#table tbody tr[data-series=sac]:visible")
    assert rows.count() == 2
    button.click()
    opened.wait_for_function(f"{LINES} === 6")
    assert button.get_attribute("aria-pressed") == "false"
    assert rows.count() == 0
    button.click()
    opened.wait_for_function(f"{LINES} === 8")
    button.click(modifiers=["Shift"])
    opened.wait_for_function(f"{LINES} === 2")
    opened.locator("[data-all]").click()
    opened.wait_for_function(f"{LINES} === 8")
    assert opened.complaints == []


def test_tables_sort(opened):
    column = opened.evaluate("[...document.querySelectorAll('#table th')].findIndex(e => e.textContent === 'IQM')")
    rows = "[...document.querySelector('#table tbody').rows]"
    values = f"{rows}.map(row => Number(row.cells[{column}].dataset.value))"
    before = opened.evaluate(values)
    button = opened.locator("#table th button", has_text="IQM")
    button.click()
    assert opened.evaluate(values) == sorted(before, reverse=True)
    button.click()
    assert opened.evaluate(values) == sorted(before)
    opened.locator("#table th button", has_text="algorithm").first.click()
    names = opened.locator("#table tbody tr td:nth-child(2)").all_inner_texts()
    assert names[0].strip() == "acc"


def test_hover_tells_values(opened):
    chart = opened.locator("[data-panel=tasks-0]")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    opened.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 80)
    tip = opened.locator("#tip")
    assert tip.is_visible()
    text = tip.inner_text()
    assert "env steps" in text
    assert "(3 runs)" in text
    assert text.count("acc") >= 2
    opened.mouse.move(2, 2)
    assert not tip.is_visible()


def test_a_watched_page_follows_records_that_changed_before_it_first_asked(browser, tmp_path):
    run = synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=20_000), until=10_000)
    watcher = Watcher(run)
    records = run / "evaluations.jsonl"

    class Late(Watcher):
        """Records change while the page is on its way"""

        def page(self):
            content = watcher.page()
            if b"at step 10,000" in content:
                records.write_text(whole + '{"step": 11000, "mean_return": 5.0}\n')
            return content

    whole = records.read_text()
    made = server(Late(run), "127.0.0.1", 0)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    page = browser.new_page()
    try:
        page.goto(f"http://127.0.0.1:{made.server_address[1]}/")
        page.get_by_text("at step 11,000 of 20,000").wait_for()
        records.write_text("nonsense\n" + whole)
        page.get_by_text("line 1 is not valid JSON").wait_for()
        records.write_text(whole + '{"step": 12000, "mean_return": 5.0}\n')
        page.get_by_text("at step 12,000 of 20,000").wait_for()
    finally:
        page.close()
        made.shutdown()
        thread.join()
        made.server_close()


def test_charts_above_each_other_begin_and_end_at_one_line(opened):
    plot = "path.background"  # of the chart inside its axes
    places = opened.evaluate(f"""[...document.querySelectorAll("[data-panel]")]
        .filter(holder => holder.querySelector(".mark-line"))
        .map(holder => [holder, holder.querySelector("{plot}")].map(e => e.getBoundingClientRect()))
        .map(([holder, plot]) => [holder.left, plot.left - holder.left, holder.right - plot.right])""")
    assert len(places) > 5
    assert len({round(holder) for holder, *_ in places}) == 2  # two columns
    for side in (1, 2):
        distances = [place[side] for place in places]
        assert max(distances) - min(distances) < 2


def test_lines_have_markers_and_so_has_the_legend(opened):
    markers = opened.locator("[data-panel=tasks-0] .mark-symbol path")
    assert markers.count() == 4 * 8
    swatches = "[...document.querySelectorAll('.legend button svg')]"
    assert opened.evaluate(f"{swatches}.length") == 4
    shapes = opened.evaluate(f"{swatches}.map(svg => svg.lastElementChild.getAttribute('d'))")
    assert len(set(shapes)) == 3  # acc and acc-2q differ in their dashes


def test_the_contents_lead_to_their_sections(opened):
    opened.locator(".contents a", has_text="What is missing").click()
    assert opened.locator("#missing h2").is_visible()
    assert 0 <= opened.locator("#missing").bounding_box()["y"] < 900


def test_paper_is_wide_enough_for_the_tables(browser, index):
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(index.as_uri())
    page.wait_for_function("document.documentElement.dataset.drawn")
    page.emulate_media(media="print")
    page.evaluate("document.body.style.width = '688px'")  # A4 within its margins
    widths = page.evaluate("[...document.querySelectorAll('table')].map(e => e.offsetWidth)")
    assert max(widths) <= 688
    page.close()


def test_narrow_screens_need_no_sideways_scrolling(browser, index):
    page = browser.new_page(viewport={"width": 360, "height": 800})
    page.goto(index.as_uri())
    page.wait_for_function("document.documentElement.dataset.drawn")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.close()


def test_dark_and_light_differ_in_ground_and_text_only(browser, index):
    seen = {}
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(index.as_uri())
        page.wait_for_function("document.documentElement.dataset.drawn")
        style = "getComputedStyle(document.querySelector('%s')).%s"
        ground = page.evaluate(style % ("body", "backgroundColor"))
        label = page.evaluate(style % (".role-axis-label text", "fill"))
        line = page.evaluate(style % ("[data-panel=tasks-0] .mark-line path", "stroke"))
        seen[scheme] = (ground, label, line)
        page.close()
    assert seen["light"][0] == "rgb(255, 255, 255)"
    assert seen["light"][0] != seen["dark"][0]
    assert seen["light"][1] != seen["dark"][1]
    assert seen["light"][2] == seen["dark"][2]
