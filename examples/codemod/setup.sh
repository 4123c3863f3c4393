#!/bin/sh
# A small repository to be changed.
set -eu
rm -rf shop
mkdir shop
cat > shop/cart.py <<'PY'
def sum_up(prices):
    return sum(prices)
PY
cat > shop/report.py <<'PY'
from cart import sum_up

print("three:", sum_up([1, 2]))
print("seven:", sum_up([3, 4]))
PY
