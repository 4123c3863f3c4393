import mistune


def use():
    text = "# Title\n\n- a *b* `c`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    return [mistune.html(text), mistune.create_markdown(renderer="ast")("a **b**")]
