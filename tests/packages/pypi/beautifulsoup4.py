from bs4 import BeautifulSoup


def use():
    soup = BeautifulSoup("<ul id=l><li class=a>1</li><li>2 <b>x</b></ul>", "html.parser")
    soup.find("li", class_="a")["title"] = "é"
    return [[item.get_text() for item in soup.select("#l > li")], soup.prettify(), soup.b.parent.name]
