import markdown


def use():
    return markdown.markdown("# Title\n\n- a *b* `c`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", extensions=["tables", "toc", "fenced_code"])
