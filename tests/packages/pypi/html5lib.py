import html5lib


def use():
    tree = html5lib.parse("<p>a<b>x<p>b", namespaceHTMLElements=False)
    return [html5lib.serialize(tree, tree="etree"), [node.tag for node in tree.iter()]]
