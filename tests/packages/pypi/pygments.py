from pygments import highlight
from pygments.formatters import HtmlFormatter, NullFormatter
from pygments.lexers import get_lexer_by_name, guess_lexer_for_filename


def use():
    code = "def f(x):\n    return x + 1  # one\n"
    return [highlight(code, get_lexer_by_name("python"), HtmlFormatter()), guess_lexer_for_filename("a.rs", "fn main() {}").name, highlight("a", get_lexer_by_name("json"), NullFormatter())]
