import six
from six.moves import urllib


def use():
    return [six.PY3, six.ensure_text(b"a\xc3\xa9"), urllib.parse.quote("a b"), sorted(six.iterkeys({"b": 1, "a": 2}))]
