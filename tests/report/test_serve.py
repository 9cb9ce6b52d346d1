import http.client
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
import synthetic

from acc_rl.commands.main import main
from acc_rl.report.serve import Watcher, allowed_hosts, server


@pytest.fixture
def run(tmp_path):
    return synthetic.write_run(tmp_path, synthetic.spec("Hopper-v5", "acc", 0, steps=20_000), until=10_000)


@contextmanager
def served(run, host):
    made = server(Watcher(run), host, 0)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made.server_address[1]
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def port(run):
    with served(run, "127.0.0.1") as port:
        yield port


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as trial:
            trial.bind(("::1", 0))
        return True
    except OSError:
        return False


def ask(port, path="/", method="GET", host=None, address="127.0.0.1"):
    connection = http.client.HTTPConnection(address, port)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def test_it_serves_the_page_and_follows_the_records(port, run):
    status, page = ask(port)
    assert status == 200
    assert "at step 10,000 of 20,000" in page
    version = ask(port, "/version")
    assert f'data-version="{version[1]}"' in page
    assert "connect-src 'self'" in page
    assert ask(port, "/version") == version
    with (run / "evaluations.jsonl").open("a") as file:
        file.write('{"step": 11000, "mean_return": 5.0}\n')
    assert ask(port, "/version") != version
    assert "at step 11,000 of 20,000" in ask(port)[1]


def test_it_only_reads(port):
    assert ask(port, method="HEAD") == (200, "")
    for method in ("POST", "PUT", "DELETE"):
        assert ask(port, method=method)[0] == 501
    for path in ("/spec.json", "/../spec.json", "/etc/passwd", "/?x"):
        assert ask(port, path)[0] == 404


def test_foreign_hosts_are_refused(port):
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "127.0.0.1:1", "10.0.0.1"):
        assert ask(port, host=host)[0] == 403
    assert ask(port, "/version", host=f"localhost:{port}")[0] == 200


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_it_serves_on_ipv6(run):
    with served(run, "::1") as port:
        assert ask(port, host=f"[::1]:{port}", address="::1")[0] == 200
        assert ask(port, host=f"evil.example:{port}", address="::1")[0] == 403


def test_hosts():
    one = allowed_hosts("fe80::1", 8000)
    assert one("[fe80::1]:8000")
    assert not one("[fe80::2]:8000")
    everywhere, one = allowed_hosts("0.0.0.0", 80), allowed_hosts("10.0.0.1", 8000)
    assert everywhere("192.168.0.7")
    assert everywhere("[fe80::1]:80")
    assert not everywhere("evil.example")
    assert one("10.0.0.1:8000")
    assert not one("10.0.0.2:8000")
    assert not one("")


def test_a_broken_record_is_told_and_not_the_end(port, run):
    whole = (run / "evaluations.jsonl").read_text()
    (run / "evaluations.jsonl").write_text("nonsense\n" + whole)
    status, told = ask(port)
    assert status == 503
    assert "line 1 is not valid JSON: b&#x27;nonsense&#x27;" in told
    assert '<meta http-equiv="refresh" content="2">' in told
    (run / "evaluations.jsonl").write_text(whole)
    assert ask(port)[0] == 200


def test_errors_of_any_kind_are_told_in_one_line(port, monkeypatch):
    def build(*_):
        raise KeyError("a\nb <script>")

    monkeypatch.setattr("acc_rl.report.serve.build", build)
    status, told = ask(port)
    assert status == 503
    assert "KeyError: &#x27;a\\nb &lt;script&gt;&#x27;</p>" in told
    assert told.count("\n") == 1
    monkeypatch.undo()
    assert ask(port)[0] == 200


def raw(port):
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def test_odd_hosts_are_refused_without_a_traceback(port, capfd):
    for digits in ("²³", "٣", "9" * 5000, "-1", "0x50"):
        with raw(port) as connection:
            connection.sendall(f"GET / HTTP/1.0\r\nHost: 127.0.0.1:{digits}\r\n\r\n".encode())
            assert b" 403 " in connection.recv(100)
    assert capfd.readouterr().err == ""


def test_a_client_that_sends_nothing_is_let_go(run, monkeypatch, capfd):
    monkeypatch.setattr("acc_rl.report.serve.PATIENCE", 0.1)
    with served(run, "127.0.0.1") as port, raw(port) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n")
        assert connection.recv(100) == b""
    assert capfd.readouterr().err == ""


def test_clients_that_leave_early_are_no_news(run, monkeypatch, capfd):
    done = threading.Event()
    monkeypatch.setattr(Watcher, "page", lambda self: done.wait(20) and b"x" * 10**8)
    made = server(Watcher(run), "127.0.0.1", 0)
    over = threading.Event()
    original = made.shutdown_request
    monkeypatch.setattr(made, "shutdown_request", lambda request: (original(request), over.set()))
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    port = made.server_address[1]
    with raw(port) as connection:
        connection.sendall(f"GET / HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        # closed with a reset, not a goodbye
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    done.set()
    assert over.wait(20)
    made.shutdown()
    thread.join()
    made.server_close()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("port", ["99999", "-1"])
def test_a_port_that_is_none(port, run, capsys):
    assert main(["report", str(run), "--watch", "--port", port]) == 2
    told = capsys.readouterr().err
    assert f"port is {port}, but must be" in told
    assert told.count("\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_ends_the_command(run):
    command = [sys.executable, "-m", "acc_rl.commands.main", "report", str(run), "--watch", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", line)[1])
    assert ask(port, "/version")[0] == 200
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
