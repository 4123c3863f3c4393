#!/usr/bin/env python3
"""Follows every link of the site in the given folder; prints those that lead nowhere, and exits 1 if there are any."""
import html
import re
import sys
from pathlib import Path
from urllib.parse import unquote

site = Path(sys.argv[1]).resolve()
pages = {page: page.read_text("utf-8") for page in site.rglob("*.html")}
anchors = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in pages.items()}
followed, broken = 0, []
for page, text in pages.items():
    # These repeat the pages that they are made from.
    if page.name in ("print.html", "404.html"):
        continue
    for link in map(html.unescape, re.findall(r'href="([^"]+)"', text)):
        if re.match(r"[a-z]+:", link):
            continue
        followed += 1
        path, _, anchor = link.partition("#")
        target = (page.parent / unquote(path)).resolve() if path else page
        target = target / "index.html" if target.is_dir() else target
        if not target.exists() or (anchor and target in anchors and unquote(anchor) not in anchors[target]):
            broken.append(f"{page.relative_to(site)}: {link}")
print(f"{len(pages)} pages, {followed} links, {len(broken)} broken")
sys.exit("\n".join(broken) if broken else 0)
