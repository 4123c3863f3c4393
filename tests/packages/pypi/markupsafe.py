from markupsafe import Markup, escape


def use():
    return [escape("<a href='x'>"), Markup("<b>%s</b>") % "<i>", Markup("<p>x &amp; y</p>").striptags()]
