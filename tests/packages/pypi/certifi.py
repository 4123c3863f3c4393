import certifi


def use():
    text = certifi.contents()
    with open(certifi.where(), encoding="ascii") as file:
        return [text.count("BEGIN CERTIFICATE") > 100, file.read() == text]
