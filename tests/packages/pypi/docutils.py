from docutils.core import publish_parts


def use():
    text = "Title\n=====\n\n* a *b*\n* ``c``\n\n.. note:: careful\n"
    parts = publish_parts(text, writer="html5", settings_overrides={"_disable_config": True})
    return [parts["title"], parts["body"]]
