"""Every page in Chromium: messages, requests, accessibility, keys, and what its scripts show."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.install.find import open_installed
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.results import ServedPage
from datasets_cli.ui.curves import frame_png
from tests.support.browser import Browser, axe_source, started_browser
from tests.support.d4rl_cuts import CUTS
from tests.support.mixture_members import rows_of, write

pytestmark = pytest.mark.slow

SAID = [f"step {number}" for number in range(200)]
SAID[5] = "<b>no\u202etag</b> \x1b[2J"
LENGTHS = [1 + number % 7 for number in range(12_000)]
ANT = "d4rl/ant-medium-v0"
PONG = "d/demo/pong/trajectories/0"
PAGES = [
    "",
    "d/demo/pong",
    f"d/{ANT}",
    "d/mine/said/trajectories/1?t=2",
    "d/test/many/trajectories?sort=-length",
    f"{PONG}?t=30",
    "d/demo/door-minari/trajectories/1?start=100&stop=200",
    "compare?a=demo/pong&b=demo/door-minari",
    "activity",
    "d/no/such",
]
EXPORTED = ["index.html", "demo/pong/index.html", "demo/pong/0.html", "demo/door-minari/1.html"]
EXPORTED += [f"{ANT}/index.html", f"{ANT}/1.html?t=210"]
looks = pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (360, "dark")])


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Config:
    config = Config(tmp_path_factory.mktemp("browser"))
    for id in ("demo/pong", "demo/door-minari"):
        datasets_cli.download(id, config=config, progress=silent)
    write(config.root / "datasets" / "test" / "many", rows_of(0, LENGTHS), "ted")
    steps = {name: np.arange(200.0) for name in ("observation", "action", "reward")}
    texts = {"said": np.array(SAID, object)}
    datasets_cli.create_dataset("mine/said", steps | texts, lengths=[3, 197], config=config)
    source = CUTS["ant-medium-v0"].lay_out(tmp_path_factory.mktemp("ant"))
    install_dataset(ANT, config, InstallOptions(source=str(source), accept_any=True))
    return config


@pytest.fixture(scope="session")
def page(root: Config) -> Iterator[ServedPage]:
    with datasets_cli.serve_page(browser=False, config=root) as page:
        yield page


OWN_HOSTS = ("redirector.gvt1.com", "update.googleapis.com")
"""Hosts that Chromium asks by itself: for its spelling dictionary, and for its newest version."""
REFUSAL = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class RefusingProxy(socketserver.ThreadingTCPServer):
    """The proxy; ``asked`` has what each request begins with, such as ``GET http://a/b``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refusal)
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Refusal(socketserver.StreamRequestHandler):
    server: RefusingProxy

    def handle(self) -> None:
        if line := self.rfile.readline(65_536):
            asked = line.decode("latin-1").rpartition(" ")[0]
            self.server.asked += [] if any(host in asked for host in OWN_HOSTS) else [asked]
            self.wfile.write(REFUSAL)


@pytest.fixture(scope="session")
def proxy() -> Iterator[RefusingProxy]:
    """A proxy for every host but the page's own, the names of this machine among them."""
    with RefusingProxy() as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy
        proxy.shutdown()


@pytest.fixture(scope="session")
def browser(page: ServedPage, proxy: RefusingProxy) -> Iterator[Browser]:
    own = page.address.partition("/?")[0].removeprefix("http://")
    with started_browser(proxy.address, own) as browser:
        yield browser


@pytest.fixture(scope="session")
def site(page: ServedPage, browser: Browser) -> str:
    """The address of the page, ending in a slash; the browser has its cookie."""
    browser.open(page.address)
    return page.address.partition("?")[0]


@pytest.fixture(scope="session")
def files(root: Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of exported pages, ending in a slash."""
    dest = tmp_path_factory.mktemp("files") / "pages"
    datasets_cli.export_pages(["demo/pong", "demo/door-minari", ANT], dest, config=root)
    return f"{dest.as_uri()}/"


@pytest.fixture(autouse=True)
def no_other_host_is_asked(proxy: RefusingProxy) -> Iterator[None]:
    yield
    assert not proxy.asked


def check(browser: Browser, begin: str, path: str, *, is_error: bool = False) -> None:
    """Check the messages and requests of a page, its rules of accessibility, and its width."""
    browser.open(begin + path)
    browser.wait("document.readyState === 'complete'")
    told = [each for each in browser.messages() if not (is_error and "status of 404" in each)]
    assert not told
    requests = browser.requests()
    assert requests and all(each.startswith(begin) for each in requests), requests
    assert not browser.violations(axe_source())
    wide = browser.run("return document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, f"{path} is {wide} pixels wider than the screen"


@looks
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_silent_asks_no_other_host_and_is_accessible(
    path: str, width: int, scheme: str, browser: Browser, site: str
) -> None:
    browser.look(width, scheme)
    check(browser, site, path, is_error=path == "d/no/such")


@looks
@pytest.mark.parametrize("path", EXPORTED)
def test_an_exported_page_is_the_same_from_the_disk(
    path: str, width: int, scheme: str, browser: Browser, files: str
) -> None:
    browser.look(width, scheme)
    check(browser, files, path)


@pytest.mark.parametrize("path", [*PAGES[1:], f"{PAGES[0]}?q=demo"])
def test_tab_reaches_everything_and_shows_where_it_is(
    path: str, browser: Browser, site: str
) -> None:
    browser.look()
    browser.open(site + path)
    browser.wait("document.readyState === 'complete'")
    assert not browser.unreached()


@pytest.mark.parametrize(
    ("path", "text"),
    [("", "demo/pong"), ("d/demo/pong", "next.observation"), ("d/demo/iris", "demo/iris")],
)
def test_catalogue_dataset_and_card_need_no_script(
    path: str, text: str, browser: Browser, site: str
) -> None:
    browser.look()
    browser.tell("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(site + path)
        assert text in browser.driver.find_element(By.TAG_NAME, "main").text
    finally:
        browser.tell("Emulation.setScriptExecutionDisabled", value=False)


def test_the_catalogue_follows_what_is_typed(browser: Browser, site: str, root: Config) -> None:
    ids = [each.id for each in datasets_cli.list_datasets(config=root)]
    count = sum("door" in id and "hum" in id for id in ids)
    browser.look()
    browser.open(site)
    browser.driver.find_element(By.ID, "words").send_keys("door hum")
    browser.wait("shown.textContent === values[0]", f"{count} datasets")
    assert browser.run("return location.search") == "?q=door+hum" and not browser.messages()


def test_many_numbers_of_a_column_have_a_chart_each(browser: Browser, site: str) -> None:
    browser.look()
    browser.open(f"{site}d/demo/door-minari/trajectories/1")
    browser.wait("document.querySelectorAll('#curves .small canvas').length === 28 + 32")
    labels = browser.run(
        "return [...document.querySelectorAll('#curves canvas')].map((each) => each.ariaLabel)"
    )
    assert len(labels) == 1 + 28 + 32
    assert labels[0].startswith("next.reward,") and labels[1].startswith("action[0],")


@pytest.fixture
def pong(browser: Browser, site: str) -> Browser:
    """The browser, with a trajectory of 962 steps and frames."""
    browser.look()
    browser.open(f"{site}{PONG}?t=30")
    browser.wait("document.getElementById('frame').width === 84")
    return browser


def readout(browser: Browser) -> str:
    text: str = browser.run("return document.getElementById('readout').textContent")
    return text


def value_of(browser: Browser, column: str) -> str:
    text: str = browser.wait(
        "[...document.querySelectorAll('#values tr')].find((row) =>"
        " row.cells[0].textContent === values[0])?.cells[1].textContent",
        column,
    )
    return text


def pixels(browser: Browser, selector: str) -> np.ndarray:
    """Return the pixels of a canvas, uint8 ``[height, width, 4]``."""
    width, height, values = browser.run(
        "const one = document.querySelector(arguments[0]), {width, height} = one;"
        "const {data} = one.getContext('2d').getImageData(0, 0, width, height);"
        "return [width, height, [...data]];",
        selector,
    )
    return np.array(values, np.uint8).reshape(height, width, 4)


def frame_of(root: Config, step: int) -> np.ndarray:
    png = frame_png(open_installed("demo/pong", root), 0, step, "observation")
    with Image.open(BytesIO(png)) as image:
        return np.asarray(image)


def test_the_frame_of_the_step_is_shown_bit_for_bit(pong: Browser, root: Config) -> None:
    np.testing.assert_array_equal(pixels(pong, "#frame")[..., 0], frame_of(root, 30))
    pong.press("ArrowRight", 39)
    pong.wait("document.getElementById('frame').ariaLabel === 'Frame of step 31'")
    np.testing.assert_array_equal(pixels(pong, "#frame")[..., 0], frame_of(root, 31))


def test_keys_move_the_step_and_the_address_has_it(pong: Browser, root: Config) -> None:
    for key, code, step in [("ArrowRight", 39, 31), ("ArrowLeft", 37, 30), ("End", 35, 961)]:
        pong.press(key, code)
        assert readout(pong).startswith(f"Step {step} of 962")
    assert readout(pong) == "Step 961 of 962, terminated"
    pong.wait("new URL(location).searchParams.get('t') === '961'")
    (reward,) = datasets_cli.peek(
        "demo/pong", trajectory=0, start=961, n=1, columns="next.reward", config=root
    ).columns
    assert float(value_of(pong, "next.reward")) == reward.values.item()


def test_space_plays_every_step_and_stops(pong: Browser) -> None:
    pong.run(
        "window.steps = []; new MutationObserver(() => steps.push(Number("
        "readout.textContent.split(' ')[1]))).observe(readout, {childList: true});"
    )
    pong.press(" ", 32, " ")
    pong.wait("steps.at(-1) >= 60")
    pong.press(" ", 32, " ")
    steps = pong.run("return steps")
    assert steps == sorted(steps) and pong.run("return play.textContent") == "Play"
    stopped = readout(pong)
    pong.wait("new URL(location).searchParams.get('t') === values[0]", stopped.split()[1])
    assert readout(pong) == stopped and not pong.messages()


def test_dragging_zooms_and_a_double_click_shows_all(pong: Browser) -> None:
    canvas = pong.driver.find_element(By.CSS_SELECTOR, "#curves canvas")
    before = pixels(pong, "#curves canvas")
    actions = ActionChains(pong.driver, duration=20)
    actions.move_to_element_with_offset(canvas, -100, 0).click_and_hold()
    actions.move_by_offset(200, 0).release().perform()
    pong.wait("new URL(location).searchParams.has('stop')")
    start, stop = pong.run(
        "const {searchParams} = new URL(location);"
        "return ['start', 'stop'].map((name) => Number(searchParams.get(name)));"
    )
    assert 0 < start < stop < 962
    assert f"steps {start} to {stop - 1}" in canvas.get_attribute("aria-label")
    assert not np.array_equal(pixels(pong, "#curves canvas"), before)
    actions.double_click(canvas).perform()
    pong.wait("!new URL(location).searchParams.has('stop')")
    assert "steps 0 to 961" in canvas.get_attribute("aria-label")


def test_a_click_on_a_curve_goes_to_its_step(pong: Browser) -> None:
    canvas = pong.driver.find_element(By.CSS_SELECTOR, "#curves canvas")
    ActionChains(pong.driver, duration=20).move_to_element(canvas).click().perform()
    step = int(readout(pong).split()[1])
    assert 420 < step < 480  # the axis is left of the curves


def test_keys_zoom_around_the_step(pong: Browser) -> None:
    pong.press("+", 187, "+")
    pong.wait("new URL(location).searchParams.get('stop') === '271'")
    pong.press("0", 48, "0")
    pong.wait("!new URL(location).searchParams.has('stop')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_curves_are_drawn_in_both_schemes(scheme: str, pong: Browser) -> None:
    pong.look(scheme=scheme)
    pong.wait("matchMedia(`(prefers-color-scheme: ${values[0]})`).matches", scheme)
    drawn = pixels(pong, "#curves canvas")
    opaque = drawn[drawn[..., 3] > 200][:, :3].astype(int)
    assert len(opaque) > 500
    assert len(np.unique(opaque, axis=0)) > 3


def test_what_is_wrong_with_a_page_is_found(browser: Browser, site: str) -> None:
    browser.look()
    browser.open(f"{site}activity")
    browser.run(
        "const add = (tag, more) => document.querySelector('main').append("
        "  Object.assign(document.createElement(tag), more));"
        "add('img', {src: 'http://elsewhere.test/a.png'});"
        "add('button', {tabIndex: -1, textContent: 'far'});"
        "add('button', {id: 'unseen', textContent: 'near'}); unseen.style.outline = 'none';"
        "console.error('said');"
    )
    browser.wait(
        "performance.getEntriesByType('resource').some((each) => each.name.includes('elsewhere'))"
    )
    assert any("said" in each for each in browser.messages())
    assert any(each.startswith("image-alt") for each in browser.violations(axe_source()))
    unreached = browser.unreached()
    assert [("far" in each, "near" in each) for each in unreached] == [(True, False), (False, True)]


def test_what_a_page_asks_of_other_hosts_is_counted(browser: Browser, proxy: RefusingProxy) -> None:
    addresses = ["http://elsewhere.test/a", "http://localhost:8000/b", "https://elsewhere.test/c"]
    browser.open("data:text/html," + "".join(f"<img src='{each}'>" for each in addresses))
    browser.wait("document.readyState === 'complete'")
    told = {*addresses[:2], "elsewhere.test:443"}
    assert {each.partition(" ")[2] for each in proxy.asked} == told
    proxy.asked.clear()


def test_the_text_of_the_step_is_shown_and_follows_the_keys(browser: Browser, site: str) -> None:
    browser.look()
    browser.open(f"{site}d/mine/said/trajectories/1?t=3")
    keys = [("ArrowLeft", 37, 2), ("ArrowRight", 39, 3), ("End", 35, 195), ("Home", 36, 0)]
    text = "[...document.querySelectorAll('#values tr')].find((row) =>"
    text += " row.cells[0].textContent === 'said')?.cells[1].textContent"
    assert browser.wait(text) == "step 6"
    for key, code, step in keys:
        browser.press(key, code)
        said = SAID[3 + step].replace("\u202e", r"\u202e").replace("\x1b", r"\u001b")
        browser.wait(f"{text} === values[0]", said)
        assert readout(browser).startswith(f"Step {step} of 196")


def test_a_finding_leads_to_its_step(browser: Browser, site: str, files: str) -> None:
    browser.look()
    for begin, page in ((site, f"d/{ANT}"), (files, f"{ANT}/index.html")):
        browser.open(begin + page)
        (link,) = browser.driver.find_elements(By.LINK_TEXT, "1,209")
        link.click()
        assert browser.wait("document.getElementById('readout')?.textContent").startswith(
            "Step 210"
        )
        assert browser.run("return document.getElementById('step').value") == "210"


def test_a_dataset_that_is_deleted_meanwhile_is_told(
    browser: Browser, site: str, root: Config
) -> None:
    write(root.root / "datasets" / "test" / "gone", rows_of(0, LENGTHS), "ted")
    browser.look()
    browser.open(f"{site}d/test/gone/trajectories")
    browser.wait("document.querySelector('#rows').scrollHeight > 100000")
    datasets_cli.delete("test/gone", config=root)
    browser.run("rows.scrollTop = 100000")
    assert "test/gone" in browser.wait("told.textContent")


def test_an_element_that_is_focused_keeps_the_focus_while_rows_scroll(
    browser: Browser, site: str
) -> None:
    browser.look()
    browser.open(f"{site}d/test/many/trajectories")
    browser.wait("document.querySelector('#rows tbody a').textContent === '0'")
    browser.run("document.querySelectorAll('#rows tbody a')[25].focus(); rows.scrollTop = 1000")
    browser.wait("document.querySelector('#rows tbody a').textContent !== '0'")
    assert browser.run("return document.activeElement.textContent") == "25"


def test_ten_thousand_rows_are_scrolled_and_few_are_there(browser: Browser, site: str) -> None:
    browser.look()
    browser.open(f"{site}d/test/many/trajectories")
    browser.wait("document.querySelector('#rows').scrollHeight > 100000")
    browser.run("rows.scrollTop = rows.scrollHeight")
    last = browser.wait(
        "[...document.querySelectorAll('#rows tbody tr')].at(-1).cells[0].textContent === '11999'"
        " && [...document.querySelectorAll('#rows tbody tr')].at(-1).innerText"
    )
    assert last.split()[:3] == ["11999", str(sum(LENGTHS[:-1])), str(LENGTHS[-1])]
    assert browser.run("return document.querySelectorAll('#rows tbody tr').length") < 120
    browser.wait("Number(new URL(location).searchParams.get('start')) > 11000")
    address = browser.driver.current_url
    browser.open(address)
    browser.wait("document.querySelector('#rows tbody a').textContent > '11000'")


def test_an_exported_trajectory_plays_and_zooms(browser: Browser, files: str, root: Config) -> None:
    browser.look()
    browser.open(f"{files}demo/pong/0.html")
    browser.wait("document.getElementById('frame').width === 84")
    browser.press("ArrowRight", 39)
    assert readout(browser) == "Step 1 of 962"
    assert value_of(browser, "next.done") == "false"
    browser.press("+", 187, "+")
    label = "return document.querySelector('#curves canvas').ariaLabel"
    assert "steps 0 to 241" in browser.run(label)
    assert not browser.messages()
