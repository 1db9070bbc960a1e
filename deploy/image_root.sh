#!/usr/bin/env bash
# What the Dockerfile's build stage runs: builds, converts the bundled model, and gathers what the images
# hold above their base.
#   deploy/image_root.sh FOLDER BASE_PACKAGES    the second is a file: the base's packages, one a line
# Copied libraries come with their licence and with their package's record where scanners look for it.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/../tools/common.sh"
root=$1 base_packages=$2
bin=build/release/bin

# The package of a file; files of /usr/lib are listed under /lib where their package is older than that link.
package_of() {
  { dpkg-query -S "$1" 2>/dev/null || dpkg-query -S "${1#/usr}" 2>/dev/null; } | sed 's/:.*//' | head -n 1
}

add_licence() {
  install -D -m 644 "/usr/share/doc/$1/copyright" "$root/usr/share/doc/$1/copyright"
}

add_library() {
  local path package
  path=$(readlink -f "$1")
  package=$(package_of "$path")
  [[ -n $package ]] || die "no package has $path"
  if grep -qxF "$package" "$base_packages"; then return; fi
  install -D -m 644 "$path" "$root$(dirname "$path")/$(basename "$1")"
  add_licence "$package"
  dpkg-query -s "$package" | install -D -m 644 /dev/stdin "$root/var/lib/dpkg/status.d/$package"
  say "$package: $path"
}

configure_and_build build/release --preset release -DLOOKBACK_TESTS=OFF -- lookback lookback-server
install -d "$root/usr/local/bin" "$root/models"
install -s "$bin/lookback" "$bin/lookback-server" "$root/usr/local/bin"
"$bin/lookback" convert tools/demo -o "$root/models/model.safetensors"
"$bin/lookback" verify "$root/models/model.safetensors"

needed=$(ldd "$root"/usr/local/bin/*)
if grep 'not found' <<<"$needed"; then die "a shared library is missing"; fi
awk '$2 == "=>" {print $3}' <<<"$needed" | sort -u | while read -r library; do add_library "$library"; done
# Compiled in, so that no library carries their licence.
for package in libprotobuf-dev libgrpc++-dev nlohmann-json3-dev libcli11-dev; do add_licence "$package"; done
