#!/bin/sh
# Installs lenetd's Debian packages into an image: install.sh FILE.deb...
set -eu

# The same number in every image, because it owns the files of volumes that outlive images.
groupadd --system --gid 900 lenet
useradd --system --uid 900 --gid lenet --home-dir /var/lib/lenet --no-create-home --shell /usr/sbin/nologin lenet

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends systemd-standalone-sysusers dataset-fashion-mnist "$@"
rm -rf /var/lib/apt/lists/*
# For the Unix socket; systemd, which would make it, is not here.
install -d -o lenet -g lenet -m 0755 /run/lenet
