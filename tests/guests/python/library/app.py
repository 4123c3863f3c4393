"""Uses Python's library as people do: with imports inside functions and behind their backs."""

import datetime

# Needs `cgi`, which a package has that webob names for Python 3.13 and later.
import webob
from lobster_step import Step, exported


def strptime():
    return datetime.datetime.strptime("2026-11-23", "%Y-%m-%d").isoformat()


def zone():
    import zoneinfo

    summer = datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")).isoformat()
    try:
        zoneinfo.ZoneInfo("Mars/Base")
    except zoneinfo.ZoneInfoNotFoundError as error:
        return [summer, str(error)]


def exact():
    import decimal

    return str(decimal.Decimal("0.1") + decimal.Decimal("0.2"))


def encodings():
    return ["é€".encode("cp1252").hex(), "あ".encode("shift_jis").hex(), "ü.example".encode("idna").decode()]


def text():
    import csv
    import io
    import re

    out = io.StringIO()
    csv.writer(out).writerow(["a,b", re.sub(r"\d+", lambda found: str(int(found[0]) + 1), "a1b22")])
    return out.getvalue()


def digest():
    import hashlib
    import hmac

    return [hashlib.sha256(b"a").hexdigest()[:8], hmac.new(b"k", b"m", "sha256").hexdigest()[:8]]


def numbers():
    import fractions
    import statistics

    return [statistics.median([3, 1, 2]), str(fractions.Fraction(1, 3))]


def more():
    import argparse, asyncio, configparser, difflib, email.message, gzip, html, logging, shlex, tomllib, uuid, zipfile
    import urllib.parse
    import xml.etree.ElementTree as tree

    return [urllib.parse.quote("a b"), html.escape("<"), tree.fromstring("<a b='1'/>").get("b"), gzip.decompress(gzip.compress(b"x")).decode()]


def chance():
    import random
    import uuid

    return [random.random() != random.random(), uuid.uuid4().version]


def clock():
    import time

    return datetime.datetime.now(datetime.timezone.utc).timestamp() <= time.time()


def no_file():
    try:
        open("/etc/hostname")
    except OSError as error:
        return isinstance(error, OSError)


def beside():
    import json
    import os

    with open(os.path.join(os.path.dirname(__file__), "data.json")) as file:
        return json.load(file)


def package():
    import icalendar

    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", "BEGIN:VEVENT", "UID:1", "SUMMARY:Talk"]
    lines += ["DTSTART;TZID=Europe/Berlin:20261123T100000", "END:VEVENT", "END:VCALENDAR", ""]
    event = icalendar.Calendar.from_ical("\r\n".join(lines)).walk("VEVENT")[0]
    return [str(event["summary"]), event.decoded("dtstart").isoformat(), webob.Request.blank("/?a=b").GET["a"]]


def optional():
    try:
        import numpy
    except ImportError:
        return "without numpy"


class Library(Step):
    name = "library"
    version = "0.1.0"
    summary = "Uses Python's library"
    args = {"type": "object", "properties": {"only": {"type": "string"}}}
    output = {}

    def run(self, args, input, output):
        if args.get("only") == "missing":
            import pandas  # noqa: F401
        if args.get("only") == "env":
            import os
            output.emit(dict(os.environ))
            return
        if args.get("only") == "os":
            import os
            import time

            output.emit({"files": sorted(os.listdir("/data")), "open": open("/data/a.txt").read(), "time": time.time() > 1e9})
            return
        probes = [strptime, zone, exact, encodings, text, digest, numbers, more, chance, clock, no_file, beside, package, optional]
        for probe in probes:
            output.emit({probe.__name__: probe()})


WitWorld = exported(Library)
