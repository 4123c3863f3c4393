"""Man pages, made from what `lobster --describe` says."""


def pages(described):
    """The pages by their file names: one of the program, one of each command."""
    commands = described["commands"]
    found = {"lobster.1": program(described, commands)}
    for command in commands:
        found[f"lobster-{command['name']}.1"] = one(described, command, f"lobster {command['name']}")
    return found


def program(described, commands):
    parts = [
        head(described, "lobster"),
        section("NAME"),
        "lobster \\- runs workflows of steps as one recorded operation",
        section("SYNOPSIS"),
        ".B lobster\n.I FILE\n.br\n.B lobster\n.I COMMAND\n.RI [ OPTIONS ]",
        section("COMMANDS"),
        *(item(f"lobster-{command['name']}(1)", first_sentence(command)) for command in commands),
        section("PIPELINE COMMANDS"),
        *(item(stage["name"], stage["description"]) for stage in described["stages"]),
        section("EXIT STATUS"),
        item("0", "The run has succeeded, waits for a person, or was cancelled by an answer."),
        item("1", "The work has failed."),
        item("2", "The request is wrong, and nothing has run."),
        item("128 + N", "Signal N told lobster to end."),
        section("SEE ALSO"),
        ".BR lobster-run (1),\n.B lobster help",
    ]
    return joined(parts)


def one(described, command, name):
    parts = [
        head(described, name.replace(" ", "-")),
        section("NAME"),
        f"{text(name.replace(' ', '-'))} \\- {text(first_sentence(command).rstrip('.'))}",
        section("SYNOPSIS"),
        *synopses(command, name),
        section("DESCRIPTION"),
        paragraphs(command.get("about")),
        *options(command),
    ]
    for inner in inner_commands(command):
        parts += [section(f"{name} {inner['name']}"), paragraphs(inner.get("about")), *options(inner)]
    if command.get("examples"):
        lines = command["examples"].strip("\n").split("\n")
        lines = lines[1:] if lines[0].strip() == "Examples:" else lines
        parts += [section("EXAMPLES"), ".nf\n" + "\n".join(text(line) for line in lines) + "\n.fi"]
    parts += [section("SEE ALSO"), ".BR lobster (1)"]
    return joined(parts)


def synopses(command, name):
    """A line for the command, and one for each command within it."""
    for words, inner in [(name, command)] + [(f"{name} {inner['name']}", inner) for inner in inner_commands(command)]:
        line = f".B {text(words)}\n.RI [ OPTIONS ]"
        for argument in inner.get("arguments", []):
            if not argument.get("flag"):
                shown = text(argument.get("value") or argument["name"].upper())
                line += f"\n.I {shown}" if argument["required"] else f"\n.RI [ {shown} ]"
        yield line if inner is command else ".br\n" + line


def inner_commands(command):
    return [inner for inner in command.get("commands", []) if inner["name"] != "help"]


def options(command):
    for argument in command.get("arguments", []):
        words = [argument[name] for name in ("short", "flag") if argument.get(name)]
        shown = ", ".join(words) or (argument.get("value") or argument["name"]).upper()
        if words and argument.get("value"):
            shown += f" {argument['value']}"
        yield item(shown, argument.get("help") or "")


def first_sentence(command):
    return " ".join((command.get("about") or "").split("\n\n")[0].split())


def head(described, name):
    return f'.TH "{text(name.upper())}" "1" "" "lobster {text(described["version"])}" "lobster"\n.ie \\n(.g .ds Aq \\(aq\n.el .ds Aq \''


def section(name):
    return f'.SH "{text(name.upper())}"'


def item(name, about):
    return f".TP\n\\fB{text(name)}\\fR\n{text(' '.join(about.split()))}"


def paragraphs(about):
    return "\n.PP\n".join(text(" ".join(part.split())) for part in (about or "").split("\n\n"))


def text(words):
    """Text that roff prints as it stands."""
    words = words.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\*(Aq").replace("`", "\\(ga")
    return "\\&" + words if words.startswith(".") else words


def joined(parts):
    return "\n".join(part for part in parts if part) + "\n"
