#!/bin/sh
# Makes the documents a site in target/book. Its source is a copy in which docs/ is the root
# and a README.md is an index.md, as mdbook wants it; links are changed with them.
set -eu
cd "$(dirname "$0")/.."
site=target/book-source
rm -rf "$site" && mkdir -p "$site/src/cli/npm"
cp docs/book.toml "$site/"
cp docs/*.md "$site/src/"
cp -r examples wit "$site/src/"
cp cli/npm/README.md "$site/src/cli/npm/"
# Sources that are not on the site lose their link.
sed -i -e 's|\[\([^]]*\)\](\(\.\./\)*guest-steps/[^)]*)|\1|g' -e 's|](\.\./|](|g' "$site"/src/*.md
sed -i -e 's|](\.\./\.\./docs/|](../../|g' "$site"/src/*/*/*.md
find "$site/src" -name '*.md' -exec sed -i 's|](\([^)]*\)README\.md|](\1index.md|g' {} +
find "$site/src" -name README.md | while read -r page; do mv "$page" "${page%README.md}index.md"; done
mdbook build "$site" --dest-dir "$PWD/target/book"
docs/check-links.py target/book
