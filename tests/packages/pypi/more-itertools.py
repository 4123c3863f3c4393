import more_itertools as more


def use():
    return [list(more.chunked(range(7), 3)), more.first_true([0, "", 3]), list(map(list, more.split_when([1, 2, 5, 6], lambda a, b: b > a + 1))), list(more.windowed("abcd", 2)), {key: list(group) for key, group in more.map_reduce("abca", str).items()}]
