from tabulate import tabulate


def use():
    rows = [["ann", 1.5], ["Bücher", 20]]
    return [tabulate(rows, headers=["name", "n"], tablefmt=kind) for kind in ("github", "grid", "html")]
