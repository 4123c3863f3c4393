import feedparser


def use():
    feed = feedparser.parse(
        '<?xml version="1.0"?><rss version="2.0"><channel><title>News</title><item><title>A &amp; B</title>'
        "<link>https://example.com/a</link><pubDate>Sun, 29 Nov 2026 10:00:00 +0100</pubDate>"
        "<description>&lt;b&gt;x&lt;/b&gt;&lt;script&gt;1&lt;/script&gt;</description></item></channel></rss>"
    )
    entry = feed.entries[0]
    return [feed.feed.title, entry.title, entry.link, list(entry.published_parsed), entry.summary, feed.version]
