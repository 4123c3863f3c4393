#!/usr/bin/env bash
# Installs the programs of tools.txt that this machine lacks, where apt is there and the user is root.
set -euo pipefail
[[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || exit 0
packages=(
  build-essential cargo cmake curl default-jdk-headless docker.io expect ffmpeg git gnupg golang-go
  imagemagick jq less man-db nodejs npm openssh-client openssl pandoc parallel patch perl php-cli postgresql-client
  procps python3-pytest python3-venv redis-tools ripgrep rsync ruby shellcheck sqlite3 systemd unzip wget
  xz-utils zip zstd
)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
((${#missing[@]})) || exit 0
apt-get update -qq
# One that this release does not have is left out; its commands are skipped.
for package in "${missing[@]}"; do
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
    echo "not installed: $package"
done
