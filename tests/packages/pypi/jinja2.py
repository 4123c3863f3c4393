from jinja2 import Environment


def use():
    text = "{% for row in rows %}{{ loop.index }}:{{ row|upper }} {% endfor %}{{ raw }} {{ raw|safe }} {{ rows|join('-') }}"
    return Environment(autoescape=True).from_string(text).render(rows=["a", "b"], raw="<x>")
