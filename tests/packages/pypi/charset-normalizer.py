from charset_normalizer import from_bytes


def use():
    text = "Bсеки човек има право на образование. Oбразованието трябва да бъде безплатно."
    best = from_bytes(text.encode("cp1251")).best()
    return [best.encoding, str(best) == text, from_bytes("größer, schöner, weiter".encode()).best().encoding]
