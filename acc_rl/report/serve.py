"""The page over HTTP, made anew when records change. Read-only."""

from __future__ import annotations

import re
import socket
import sys
import threading
from collections.abc import Callable
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from acc_rl.core.errors import AccError
from acc_rl.report.load import Cache
from acc_rl.report.page import build

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PATIENCE = 10.0
"""seconds that a client may take to send, or to receive, the next bytes"""
PATTERNS = ("*.json", "*.jsonl", "*/*.json", "*/*.jsonl")


def fingerprint(path: Path) -> str:
    """Changes when a record does"""
    stats = []
    for file in sorted(file for pattern in PATTERNS for file in path.glob(pattern)):
        try:
            stat = file.stat()
        except OSError:  # gone between the two looks
            continue
        stats.append((str(file), stat.st_size, stat.st_mtime_ns))
    return f"{hash(tuple(stats)) & (2**64 - 1):016x}"


class Watcher:
    """The page of a folder, rebuilt when it is asked for and records have changed since."""

    def __init__(self, path: Path, normalise: Path | None = None, seed: int = 0) -> None:
        self.path, self.normalise, self.seed = path, normalise, seed
        self._lock, self._cache = threading.Lock(), Cache()
        self._version, self._page = "", b""

    def page(self) -> bytes:
        with self._lock:
            version = fingerprint(self.path)
            if version != self._version:
                html, _ = build(self.path, self.normalise, self.seed, version, self._cache)
                self._version, self._page = version, html.encode()
            return self._page

    def version(self) -> bytes:
        return fingerprint(self.path).encode()


def allowed_hosts(host: str, port: int) -> Callable[[str], bool]:
    """Which Host headers are answered: on loopback only its names, so that no foreign page can reach in by DNS
    rebinding; on another address also that one and, if all are bound, any literal address, but no other name."""

    def allowed(header: str) -> bool:
        name, colon, named_port = header.rpartition(":")
        if not colon or not re.fullmatch(r"[0-9]+", named_port):
            name, named_port = header, "80"
        name = name.removeprefix("[").removesuffix("]")
        if named_port != str(port):
            return False
        if name in LOOPBACK or name == host:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return host in ("0.0.0.0", "::")

    return allowed


def trouble(error: Exception) -> bytes:
    """A page that tells the error in one line and asks again"""
    foreseen = isinstance(error, (ValueError, OSError))
    message = escape(" ".join((str(error) if foreseen else f"{type(error).__name__}: {error}").split()))
    return f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="2"><p>{message}</p>\n'.encode()


def server(watcher: Watcher, host: str, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE

        def do_GET(self) -> None:
            self.answer(body=True)

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def answer(self, body: bool) -> None:
            if not allowed(self.headers.get("Host", "")):
                return self.reply(403, b"unknown host\n", "text/plain", body)
            pages = {"/": ("text/html; charset=utf-8", watcher.page), "/version": ("text/plain", watcher.version)}
            if self.path not in pages:
                return self.reply(404, b"not found\n", "text/plain", body)
            kind, make = pages[self.path]
            try:
                content = make()
            except Exception as error:  # whatever records that are half written bring
                return self.reply(503, trouble(error), "text/html; charset=utf-8", body)
            return self.reply(200, content, kind, body)

        def reply(self, status: int, content: bytes, kind: str, body: bool) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):  # the client has left
                super().handle_error(request, client_address)

    made = Server((host, port), Handler)
    allowed = allowed_hosts(host, made.server_address[1])
    return made


def watch(path: Path, host: str, port: int, normalise: Path | None = None, seed: int = 0) -> None:
    """Serve until Ctrl-C."""
    if not 0 <= port <= 65535:
        raise AccError(f"port is {port}, but must be an integer from 0 to 65535 (0: any that is free)")
    watcher = Watcher(path, normalise, seed)
    watcher.page()  # mistakes show now, not in the browser
    address = f"[{host}]" if ":" in host else host
    try:
        made = server(watcher, host, port)
    except OSError as error:
        raise AccError(f"cannot serve on {address}:{port}: {error.strerror}; try another --port or --host") from None
    print(f"http://{address}:{made.server_address[1]}/ shows {path} and follows it; Ctrl-C ends", flush=True)
    try:
        made.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        made.server_close()
