from sortedcontainers import SortedDict, SortedList, SortedSet


def use():
    many = SortedList(range(5000, 0, -1))
    many.add(17)
    return [many[16:19], many.bisect(100), list(SortedDict(b=1, a=2).items()), list(SortedSet("hello")), len(many)]
