"""https: certificates that are not accepted, and redirects that leave it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import certifi
import pytest

from datasets_cli.cli.main import main
from datasets_cli.config import Config, load_config
from datasets_cli.errors import NetworkError, UsageError
from datasets_cli.sources.http import Http
from tests.support.origin import Origin, certificate, redirect


@pytest.fixture(autouse=True)
def no_certificates_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def secure() -> Iterator[Origin]:
    """An https server with a certificate of its own."""
    with Origin(tls=True) as running:
        running.put("page", b"1")
        yield running


@pytest.fixture
def plain() -> Iterator[Origin]:
    with Origin() as running:
        running.put("page", b"2")
        yield running


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate()))


@pytest.fixture
def http(config: Config) -> Http:
    return Http(config, retries=3, backoff_seconds=0.001)


def test_a_certificate_that_is_not_accepted_is_not_tried_again_and_told_with_its_settings(
    http: Http, secure: Origin, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(NetworkError) as caught:
        http.json(secure.url + "page")
    assert (caught.value.exit_code, caught.value.found) == (5, "CERTIFICATE_VERIFY_FAILED")
    assert caught.value.expected == "the built-in list"
    assert "REQUESTS_CA_BUNDLE" in str(caught.value.advice)
    assert "without a proxy" in str(caught.value)
    assert "trying again" not in caplog.text


def test_after_a_certificate_that_is_not_accepted_the_next_server_is_asked(
    config: Config, secure: Origin, plain: Origin
) -> None:
    http = Http(replace(config, mirrors=((plain.url, secure.url),)))
    assert http.json(plain.url + "page") == 2


def test_the_certificates_and_the_proxy_in_use_are_named(
    http: Http, secure: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = secure.url.replace("https://", "https://me:s3cr3t@")
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setenv("CURL_CA_BUNDLE", certifi.where())
    with pytest.raises(NetworkError) as caught:
        http.json("https://example.org/")
    for words in (f"the proxy {secure.url} (HTTPS_PROXY)", f"CURL_CA_BUNDLE={certifi.where()}"):
        assert words in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_a_certificate_that_the_user_accepts_is_accepted(
    http: Http, secure: Origin, trusted: None
) -> None:
    assert http.json(secure.url + "page") == 1


def test_a_file_of_certificates_that_is_not_there_is_named(
    http: Http, secure: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nosuch/ca.pem")
    with pytest.raises(UsageError) as caught:
        http.json(secure.url + "page")
    found = caught.value.argument, caught.value.path
    assert found == ("REQUESTS_CA_BUNDLE", "/nosuch/ca.pem")


def test_a_file_of_certificates_that_is_none_is_named(
    http: Http, secure: Origin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    with pytest.raises(NetworkError) as caught:
        http.json(secure.url + "page")
    assert caught.value.expected == f"REQUESTS_CA_BUNDLE={tmp_path / 'ca.pem'}"


def test_a_server_that_speaks_no_tls_is_not_asked_again(http: Http, plain: Origin) -> None:
    with pytest.raises(NetworkError) as caught:
        http.json(plain.url.replace("http:", "https:") + "page")
    assert caught.value.expected == "the built-in list"


def test_a_redirect_from_https_to_http_is_refused(
    http: Http, secure: Origin, plain: Origin, trusted: None
) -> None:
    secure.always("moved", redirect(plain.url + "page"))
    with pytest.raises(NetworkError) as caught:
        http.json(secure.url + "moved")
    assert caught.value.found == plain.url + "page"
    assert "RLDS_ALLOW_HTTP" in str(caught.value.advice)
    assert (len(secure.requests), plain.requests) == (1, [])


def test_a_redirect_from_https_to_http_is_followed_where_the_user_allows_it(
    config: Config, secure: Origin, plain: Origin, trusted: None
) -> None:
    secure.always("moved", redirect(plain.url + "page"))
    assert Http(replace(config, allow_http=True)).json(secure.url + "moved") == 2


def test_a_redirect_may_lead_from_http_to_https_and_not_back(
    http: Http, secure: Origin, plain: Origin, trusted: None
) -> None:
    plain.always("up", redirect(secure.url + "page"))
    plain.always("up-and-down", redirect(secure.url + "down"))
    secure.always("down", redirect(plain.url + "page"))
    assert http.json(plain.url + "up") == 1
    with pytest.raises(NetworkError) as caught:
        http.json(plain.url + "up-and-down")
    assert caught.value.expected == "https"


def test_the_next_page_of_a_list_may_not_leave_https(
    http: Http, secure: Origin, trusted: None
) -> None:
    following = secure.url.replace("https:", "http:")
    secure.put("list", b"[1]", link=f'<{following}>; rel="next"')
    with pytest.raises(NetworkError) as caught:
        next(http.pages(secure.url + "list"))
    assert caught.value.expected == "https"


def test_a_mirror_is_asked_after_a_redirect_that_is_refused(
    config: Config, secure: Origin, plain: Origin, trusted: None
) -> None:
    secure.always("page", redirect(plain.url + "page"))
    http = Http(replace(config, mirrors=((plain.url, secure.url),)))
    assert http.json(plain.url + "page") == 2


@pytest.mark.parametrize("how", ["flag", "environment", "file", "none"])
def test_http_is_allowed_by_flag_environment_or_file(
    how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if how == "environment":
        monkeypatch.setenv("RLDS_ALLOW_HTTP", "1")
    if how == "file":
        (tmp_path / "config" / "rlds").mkdir(parents=True)
        (tmp_path / "config" / "rlds" / "config.toml").write_text("[core]\nallow_http = true\n")
    assert load_config(allow_http=True if how == "flag" else None).allow_http is (how != "none")


def test_the_network_options_are_options_of_every_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "x*", "--allow-http", "--lowest-speed", "0", "--json"]) in (0, 3)
    assert main(["list", "--lowest-speed", "fast"]) == 2
    assert "'fast' is not a number of bytes a second" in capsys.readouterr().err
