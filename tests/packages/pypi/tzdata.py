from datetime import datetime
from importlib import resources
from zoneinfo import ZoneInfo


def use():
    day = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Zurich"))
    zones = resources.files("tzdata").joinpath("zones").read_text().split()
    return [day.isoformat(), day.astimezone(ZoneInfo("Asia/Tokyo")).isoformat(), "Europe/Zurich" in zones]
