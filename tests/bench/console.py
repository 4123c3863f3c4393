#!/usr/bin/env python3
"""Measures the console: pages, live updates, viewers, memory, in a small and a large store.

    console.py [--lobster target/release/lobster] [--fill target/release/examples/fill_store]
               [--runs 100000] [--viewers 200] [--rounds 40] [--browser DIR] [--json OUT]

Prints each figure with its bar. Absolute times depend on the machine and on what else it does: the
ratios of the two stores do not. Needs Python 3.9; how soon a DOM is ready is measured with the packages that
tests/console/run.sh leaves in DIR, node and a Chromium.
"""

import argparse
import http.client
import json
import os
import pathlib
import queue
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FIGURES = []
STEPS = 2000
# Enough that each page shows as many rows as in any larger store.
FEW = 10_000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lobster", default=str(REPOSITORY / "target" / "release" / "lobster"))
    parser.add_argument("--fill", default=str(REPOSITORY / "target" / "release" / "examples" / "fill_store"))
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--browser", metavar="DIR")
    parser.add_argument("--json")
    args = parser.parse_args()
    if shutil.which(args.lobster) is None:
        sys.exit(f"no binary at {args.lobster}; build it with: cargo build --release")
    with tempfile.TemporaryDirectory(prefix="lobster-console-") as directory:
        stores = []
        for runs in (FEW, args.runs):
            place = pathlib.Path(directory, f"{len(stores)}")
            place.mkdir()
            stores.append((place, measure(args, place, runs)))
        compare(args, stores)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(FIGURES, indent=1) + "\n", "utf-8")


def figure(what, value, unit, bar=None):
    """Prints a figure; whether the bar is met is for whoever reads it to weigh."""
    met = "" if bar is None else ("met" if value <= bar else "MISSED")
    limit = "" if bar is None else f"  bar <= {bar:g} {unit}"
    print(f"{what:<62} {value:>10,.2f} {unit}{limit}  {met}", flush=True)
    FIGURES.append({"what": what, "value": value, "unit": unit, "bar": bar, "met": met or None})


class Server:
    """A server over a store, and a session with it."""

    def __init__(self, lobster, directory):
        self.lobster, self.directory = lobster, directory
        self.env = dict(os.environ, LOBSTER_STATE_DIR=str(directory / "state"), LOBSTER_RETENTION="off")
        self.process = subprocess.Popen(
            [lobster, "serve", "--listen", "127.0.0.1:0"], env=self.env, cwd=directory, stderr=subprocess.PIPE, text=True
        )
        for line in self.process.stderr:
            if "listens on http://" in line:
                self.address = line.split("http://")[1].strip()
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        link = self.run("serve", "link", "--name", "bench", "--role", "viewer").stdout.strip().split("#")[1]
        origin = f"http://{self.address}"
        connection = self.connection()
        connection.request(
            "POST", "/login", f"link={link}&next=%2F",
            {"Origin": origin, "Content-Type": "application/x-www-form-urlencoded"},
        )
        reply = connection.getresponse()
        self.cookie = reply.getheader("set-cookie").split(";")[0]
        connection.close()

    def run(self, *words, **more):
        return subprocess.run([self.lobster, *words], env=self.env, cwd=self.directory, capture_output=True, text=True, **more)

    def connection(self):
        return http.client.HTTPConnection(*self.address.split(":"), timeout=60)

    def page(self, path, rounds):
        """The median times to the first byte and to the last one, in milliseconds, and the length."""
        connection, firsts, lasts, length = self.connection(), [], [], 0
        for _ in range(rounds):
            begun = time.perf_counter()
            connection.request("GET", path, headers={"Cookie": self.cookie, "Accept": "text/html"})
            reply = connection.getresponse()
            firsts.append((time.perf_counter() - begun) * 1000)
            body = reply.read()
            lasts.append((time.perf_counter() - begun) * 1000)
            length = len(body)
            if reply.status != 200:
                sys.exit(f"{path}: {reply.status} {body[:300]!r}")
        connection.close()
        return statistics.median(firsts), statistics.median(lasts), length

    def times_of(self, run):
        """When the records of a run were written, in milliseconds since 1970."""
        connection = self.connection()
        connection.request("GET", f"/api/v1/runs/{run}/events?limit=1000", headers={"Cookie": self.cookie})
        events = json.loads(connection.getresponse().read())["events"]
        connection.close()
        return [event["at"] for event in events]

    def memory(self):
        """MiB that are resident."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text("utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def processor(self):
        """Seconds of processor time."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        self.process.terminate()
        self.process.wait()


class Viewer(threading.Thread):
    """A tab that follows the record: when each run is heard of."""

    def __init__(self, server, heard):
        super().__init__(daemon=True)
        host, port = server.address.split(":")
        self.heard = heard
        self.socket = socket.create_connection((host, int(port)))
        head = f"GET /api/v1/changes HTTP/1.1\r\nHost: {server.address}\r\nCookie: {server.cookie}\r\n\r\n"
        self.socket.sendall(head.encode())
        self.start()

    def run(self):
        try:
            for line in self.socket.makefile("r", encoding="utf-8", errors="replace"):
                if line.startswith("data: ["):
                    at = time.time()
                    for run in json.loads(line[6:]):
                        self.heard.put((run, at))
        except (OSError, ValueError):
            pass

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.socket.close()


def latency(server, viewers, rounds):
    """How long after a record was written each viewer hears of it, in milliseconds."""
    heard = queue.Queue()
    tabs = [Viewer(server, heard) for _ in range(viewers)]
    time.sleep(1)
    written, waits = {}, []
    used, begun = server.processor(), time.time()
    for _ in range(rounds):
        server.run("run", "--mode", "tool", "exec true")
        time.sleep(0.15)
    time.sleep(1)
    used = (server.processor() - used) / (time.time() - begun)
    for run in json.loads(server.run("runs", "--json", "--limit", str(rounds)).stdout):
        written[run["id"]] = server.times_of(run["id"])
    while not heard.empty():
        run, at = heard.get()
        # A message may tell of several records at once: it is as late as the newest one that it can tell of.
        before = [time_ for time_ in written.get(run, []) if time_ <= at * 1000 + 1]
        if before:
            waits.append(at * 1000 - max(before))
    for tab in tabs:
        tab.close()
    waits.sort()
    return waits, used


def dom_ready(args, server, pages):
    """How soon a browser has the DOM of each page."""
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    script = pathlib.Path(args.browser, "dom_ready.mjs")
    if browser is None or not script.exists():
        sys.exit(f"no Chromium, or no packages in {args.browser}: tests/console/run.sh LOBSTER {args.browser} installs both")
    words = ["node", script, browser, f"http://{server.address}", server.cookie, str(args.rounds), *pages.values()]
    said = subprocess.run(words, check=True, capture_output=True, text=True, cwd=args.browser).stdout
    for name, path in pages.items():
        figure(f"{name}: DOM ready", json.loads(said)[path], "ms", 100)


def measure(args, directory, runs):
    """The figures of a store with so many runs; gives its pages."""
    print(f"-- {runs} runs", flush=True)
    env = dict(os.environ, LOBSTER_STATE_DIR=str(directory / "state"), LOBSTER_RETENTION="off")
    subprocess.run([args.fill, str(directory / "state"), str(runs), str(STEPS)], check=True, env=env, stdout=subprocess.DEVNULL)
    server = Server(args.lobster, directory)
    try:
        time.sleep(1)
        figure("an idle server holds", server.memory(), "MiB", 80)
        many, *_, old = [run["id"] for run in json.loads(server.run("runs", "--json", "--limit", "20").stdout)]
        first, *_ = server.page(f"/runs/{many}", 1)
        figure(f"a run of {STEPS} steps, when it is looked at first", first, "ms", 20)
        pages = {
            "500 runs": "/runs?limit=500",
            "the first page": "/",
            f"a run of {STEPS} steps": f"/runs/{many}",
            "the end of that run": f"/runs/{many}?from={STEPS - 100}",
            "a step of that run": f"/runs/{many}/step?path=s77",
            "a step with a history": f"/runs/{old}/step?path=send",
            "runs of one name": "/runs?name=workflow+7",
            "failed runs": "/runs?status=failed&limit=500",
            "waiting runs": "/runs?status=waiting&limit=500",
            "the store": "/store",
        }
        for name, path in pages.items():
            first, last, length = server.page(path, args.rounds)
            figure(f"{name}: first byte", first, "ms", 20)
            figure(f"{name}: last byte", last, "ms")
            figure(f"{name}: length", length / 1000, "kB", 100)
        if args.browser:
            dom_ready(args, server, pages)
        for viewers in (1, args.viewers):
            waits, used = latency(server, viewers, args.rounds)
            figure(f"{viewers} viewers hear of a record, p95", waits[int(len(waits) * 0.95)], "ms", 250)
            figure(f"{viewers} viewers: messages", len(waits), "in all")
            figure(f"{viewers} viewers: processor time of the server", used * 100, "%")
        figure(f"a server that had {args.viewers} viewers holds", server.memory(), "MiB", 80)
    finally:
        server.close()
    return pages


def compare(args, stores):
    """How long each page takes in the large store against the small one, in turn."""
    servers = [Server(args.lobster, place) for place, _ in stores]
    try:
        for name in stores[0][1]:
            times = [[], []]
            for at in range(args.rounds + 1):
                for server, (_, pages), own in zip(servers, stores, times):
                    _, last, _ = server.page(pages[name], 1)
                    # What is not in memory yet is another figure.
                    own += [last] if at else []
            small, large = map(statistics.median, times)
            figure(f"{name}: {args.runs} runs against {FEW}", large / small, "times", 1.5)
    finally:
        for server in servers:
            server.close()


if __name__ == "__main__":
    main()
