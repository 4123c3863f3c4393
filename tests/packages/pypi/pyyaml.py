import yaml


def use():
    read = yaml.safe_load("a: &x [1, two]\nb: *x\nc: |\n  text\n  more\nd: 2026-11-29\n")
    return [str(read), yaml.safe_dump({"a": [1, {"b": "x: y"}], "d": None})]
