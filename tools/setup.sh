#!/usr/bin/env bash
# Installs what lookback needs on Debian 12 and says nothing when it is all there.
#   tools/setup.sh [SECTION…]     sections of tools/packages.txt; default: build
# The section `test` also makes build/venv with the Python packages of the integration tests.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packages_of() {
  awk -v want="[$1]" '/^\[/ {section = $1; found += section == want; next}
                      section == want && /^[a-z]/ {print $1}
                      END {exit !found}' tools/packages.txt ||
    die "no section '$1' in tools/packages.txt (has: $(grep -o '^\[.*\]' tools/packages.txt | tr '\n' ' '))"
}

install_packages() {
  local section listed wanted=() missing=() package
  for section in "$@"; do
    listed=$(packages_of "$section")
    mapfile -t -O "${#wanted[@]}" wanted <<<"$listed"
  done
  if command -v dpkg-query >/dev/null; then
    for package in "${wanted[@]}"; do
      if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
        missing+=("$package")
      fi
    done
  else
    missing=("${wanted[@]}")
  fi
  if ((${#missing[@]} == 0)); then return; fi

  local system
  system=$(. /etc/os-release 2>/dev/null && echo "${ID:-} ${VERSION_ID:-}") || system=""
  if [[ $system != "debian 12" ]]; then
    die "needs Debian 12 to install packages, this is '${system:-unknown}'. Install by hand what" \
      "corresponds to: ${missing[*]} (README.md, Build without the scripts)"
  fi
  local as_root=(env)
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || die "not root and no sudo; as root run: apt-get install ${missing[*]}"
    say "asks sudo to install ${#missing[@]} packages"
    sudo -v || die "sudo refused; as root run: apt-get install ${missing[*]}"
    as_root=(sudo env)
  fi
  stage "install ${#missing[@]} packages" apt_install
}

apt_install() {
  printf 'missing: %s\n' "${missing[*]}"
  local apt=("${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}"
}

# build/venv follows tests/integration/requirements.txt: made again when its hash changes.
install_python() {
  local requirements=tests/integration/requirements.txt stamp=build/venv/requirements.sha256 hash
  [[ -f $requirements ]] || die "$requirements is missing: the integration tests cannot run"
  hash=$(sha256sum <"$requirements")
  if [[ -f $stamp && $(<"$stamp") == "$hash" ]] && build/venv/bin/python -c '' 2>/dev/null; then return; fi
  stage "install Python packages" pip_install
  printf '%s\n' "$hash" >"$stamp"
}

pip_install() {
  rm -rf build/venv && python3 -m venv build/venv &&
    build/venv/bin/python -m pip install --disable-pip-version-check --progress-bar off -r "$requirements"
}

if (($# == 0)); then set -- build; fi
install_packages "$@"
for section in "$@"; do
  if [[ $section == test ]]; then install_python; fi
done
