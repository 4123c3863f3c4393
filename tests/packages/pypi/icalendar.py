from icalendar import Calendar


def use():
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", "BEGIN:VEVENT", "UID:1", "SUMMARY:Lunch\\, late", "DTSTART;TZID=Europe/Zurich:20261129T120000", "RRULE:FREQ=WEEKLY;COUNT=2", "END:VEVENT", "END:VCALENDAR", ""]
    calendar = Calendar.from_ical("\r\n".join(lines))
    event = calendar.walk("VEVENT")[0]
    return [str(event["summary"]), event.decoded("dtstart").isoformat(), event["rrule"].to_ical().decode(), calendar.to_ical().decode()]
