import tomli


def use():
    read = tomli.loads('a = [1, 2.5]\nd = 2026-11-29\n[t."x y"]\nk = """\nmore\n"""\n')
    try:
        tomli.loads("a = ")
    except tomli.TOMLDecodeError as error:
        return [str(read), str(error)]
