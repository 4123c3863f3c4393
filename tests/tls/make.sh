#!/bin/sh
# Makes the authority and the server's certificate of the tests again. The authority's key is thrown away.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
openssl req -x509 $key -keyout "$work/ca.key" -out ca.pem -days 36500 -subj "/CN=lobster test authority" \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign"
openssl req $key -keyout server.key -out "$work/server.csr" -subj "/CN=localhost"
printf '%s\n' "subjectAltName=DNS:localhost,DNS:*.localhost,IP:127.0.0.1,IP:127.0.0.3" \
    "basicConstraints=CA:FALSE" "extendedKeyUsage=serverAuth" > "$work/ext"
openssl x509 -req -in "$work/server.csr" -CA ca.pem -CAkey "$work/ca.key" -CAcreateserial -out server.pem \
    -days 36500 -extfile "$work/ext"
rm -f ca.srl
