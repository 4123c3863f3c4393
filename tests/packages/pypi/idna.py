import idna


def use():
    return [idna.encode("bücher.example").decode(), idna.decode("xn--bcher-kva.example"), idna.encode("Faß.DE", uts46=True).decode()]
