#!/usr/bin/env bash
# Builds both images of the Dockerfile without a Docker daemon and tries them: runs every command of README.md's
# container section, streams, drains, converts, looks at what is inside and at what is refused. On Debian 12, as root:
#   deploy/test_image.sh
# build/image keeps the base and the layers, so that a second run builds only what has changed; remove it to start over.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/../tools/common.sh"
source deploy/docker.sh
[[ $(id -u) == 0 ]] || die "needs root, to make name spaces and mounts"
started=$SECONDS
work=$images/work
most_mb=120 # above the base

trap docker_cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The image from the registry, or the same system made by debootstrap.
make_base() {
  local container root
  if buildah pull --policy missing docker.io/library/debian:bookworm-slim; then
    buildah tag docker.io/library/debian:bookworm-slim "localhost/$base"
    return
  fi
  say "no registry: debootstrap"
  container=$(buildah from scratch) && root=$(buildah mount "$container") && [[ -n $root ]] &&
    debootstrap --variant=minbase bookworm "$root" &&
    rm -rf "${root:?}"/var/cache/apt/archives/*.deb "${root:?}"/var/lib/apt/lists/* "${root:?}"/dev/* &&
    buildah umount "$container" && buildah commit --rm "$container" "localhost/$base"
}

# readme BLOCK: runs the commands of the container section's n-th block, one after the other.
readme() {
  local commands command
  mapfile -t commands < <(awk -v want="$1" '/^## / {inside = $0 == "## In a container"}
                                            inside && /^```/ {block += $0 == "```sh"; code = $0 == "```sh"; next}
                                            inside && code && block == want' "$repository/README.md")
  ((${#commands[@]} > 0)) || die "README.md's container section has no block $1"
  for command in "${commands[@]}"; do
    printf '\n$ %s\n' "$command"
    eval "$command"
    if [[ $command == "docker run -d"* ]]; then wait_healthy lookback; fi
  done
}

# What HEALTHCHECK runs: prints the answer, returns the exit code.
health() {
  local check
  mapfile -t check < <(config lookback Healthcheck.Test)
  docker exec "$1" "${check[@]:1}"
}
wait_healthy() {
  local start tries=600 # of 0.1 s
  start=$(date +%s%N)
  until health "$1" >/dev/null 2>&1; do
    kill -0 "${container_job[$1]}" 2>/dev/null || die "$1 ended before it served: $(docker logs "$1")"
    ((--tries > 0)) || die "$1 is not healthy after 60 s: $(docker logs "$1")"
    sleep 0.1
  done
  say "healthy after $((($(date +%s%N) - start) / 1000000)) ms"
}

# refused CODE TEXT ARGUMENTS…: `docker run` ends with CODE and one line that holds TEXT.
refused() {
  local code=$1 text=$2 status=0 output
  shift 2
  output=$(docker run --rm --read-only "$@" 2>&1) || status=$?
  [[ $status == "$code" && $output == *"$text"* && $output != *$'\n'* ]] ||
    die "docker run $*: exit code $status, expected $code and one line with '$text'; it said: $output"
  say "exit $status: $output"
}

# added IMAGE: the files that are not in its base.
added() {
  comm -13 <(cd "$(root_of $base)" && find . ! -type d | sort) <(cd "$(root_of "$1")" && find . ! -type d | sort)
}

check_contents() {
  local image=$1 root other bytes
  root=$(root_of "$image")
  other=$(added "$image" | grep -vE '^\./(usr/local/bin/lookback(-server)?|models/model\.safetensors|usr/lib/[^/]*-linux-gnu/lib[^/]*\.so[.0-9]*|usr/share/doc/[^/]*/copyright|var/lib/dpkg/status\.d/[^/]*)$') || true
  [[ -z $other ]] || die "$image holds more than it should: $other"
  other=$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Package}\n' |
    grep -E -- '-dev$|^(gcc|g\+\+|cpp|clang|binutils|python)[-.0-9]*$') || true
  other+=$(find "$root" \( -path '*/bin/*' -regex '.*/\(gcc\|g\+\+\|cc\|c\+\+\|cpp\|clang\|ld\|as\|python\)[-.0-9]*' \
    -o -name cc1 -o -name cc1plus -o -path '*/usr/include/*' -name '*.h' -o -name '*.a' \))
  [[ -z $other ]] || die "$image holds a compiler, headers or Python: $other"
  bytes=$(cd "$root" && added "$image" | tr '\n' '\0' | xargs -0 stat -c %s | awk '{sum += $1} END {print sum}')
  ((bytes < most_mb * 1000000)) || die "$image: $bytes bytes above its base, expected less than $most_mb MB"
  printf '%-16s %5.1f MB above a base of %.1f MB; no compiler, header or Python\n' "$image" \
    "$((bytes / 100000))e-1" "$(($(du -sb "$(root_of $base)" | cut -f 1) / 100000))e-1"
}

check_configuration() {
  local version user
  [[ $(config lookback Entrypoint) == lookback-server && $(config lookback Healthcheck.Test | head -n 1) == CMD ]] ||
    die "the image wants a shell"
  user=$(config_word lookback User)
  [[ $user =~ ^[1-9][0-9]*:[1-9][0-9]*$ ]] || die "user '$user' is not a number"
  [[ $(config_word lookback StopSignal) == SIGTERM ]] || die "no STOPSIGNAL"
  version=$(docker run --rm lookback --version)
  [[ $(config_word lookback Labels) == *"org.opencontainers.image.version:$version"[\ \]]* ]] ||
    die "the labels do not say version $version: $(config_word lookback Labels)"
  say "user $user, version $version, stops on SIGTERM, entry point and HEALTHCHECK without a shell"
}

# Of the running server: the process has the user, no group, no capability; nothing can be written.
check_process() {
  local status writable
  status=$(docker exec "$1" cat /proc/1/status | tr -s '\t ' ' ')
  [[ $status == *"Name: lookback-server"* && $status == *"Uid: 65532 65532 65532 65532"* &&
    $status == *"Gid: 65532 65532 65532 65532"* && $status =~ Groups:\ ?$'\n' &&
    $status == *"CapEff: 0000000000000000"* && $status == *"NoNewPrivs: 1"* ]] || die "process 1: $status"
  writable=$(docker exec "$1" find / -xdev -writable ! -type l 2>/dev/null) || true
  [[ -z $writable ]] || die "can be written: $writable"
  say "process 1: 65532:65532, no groups, no capabilities, no new privileges, no path to write"
}

check_drain() {
  local text=$work/long.txt status=0 generating tries
  docker run -d --rm --name drain --read-only -e LOOKBACK_MAX_CONTEXT=8192 -e LOOKBACK_LOG_REQUESTS=true lookback
  wait_healthy drain
  say "before:  $(health drain)"
  : >"$text"
  # In a container of its own: what `docker exec` starts ends with the server.
  docker run --rm --name answer --network container:drain lookback-tools client 127.0.0.1:50051 generate \
    --prompt 'In the beginning' --temperature 0 --ignore-eos --max-new-tokens 2000 --stats >"$text" 2>&1 &
  generating=$!
  for ((tries = 600; $(stat -c %s "$text") < 100; --tries)); do
    ((tries > 0)) || die "no text after 60 s: $(<"$text")"
    sleep 0.1
  done
  docker kill --signal TERM drain
  for ((tries = 50; ; --tries)); do
    status=0
    health drain >"$work/health" 2>&1 || status=$?
    ((status == 0 && tries > 0)) || break
    sleep 0.1
  done
  [[ $status == 1 && $(<"$work/health") == NOT_SERVING ]] || die "health $status in the drain: $(<"$work/health")"
  say "during:  $(<"$work/health"), exit code 1, after $(stat -c %s "$text") bytes of a running answer"
  if docker exec drain lookback client 127.0.0.1:50051 generate --prompt 'Again' >"$work/refused" 2>&1; then
    die "new work was taken in the drain"
  fi
  say "         new work: $(<"$work/refused")"
  wait "$generating" || die "the running answer was cut: $(tail -c 300 "$text")"
  docker wait drain >"$work/code"
  status=$(<"$work/code")
  [[ $status == 0 ]] || die "exit code $status after the drain: $(docker logs drain)"
  grep -q '"completion_tokens":2000' "$images/drain.log" || die "not all tokens came: $(docker logs drain)"
  if health drain >/dev/null 2>&1; then die "health after the drain"; fi
  say "after:   exit code 0, all 2000 tokens of the running answer ($(stat -c %s "$text") bytes), no health"
}

tools/setup.sh image
rm -rf "$work"
mkdir -p "$work/empty"
cp -r --parents tools/demo "$work"
if ! buildah inspect --type image "localhost/$base" >/dev/null 2>&1; then stage "base" make_base; fi
mount_image $base
cd "$work"

say "The commands of README.md:"
readme 1
check_process lookback
readme 2
docker exec lookback lookback client 127.0.0.1:50051 windows | grep -q '^source --windows 64' || die "not the mounted model"

printf '\nThe images:\n'
check_configuration
check_contents lookback
check_contents lookback-tools

printf '\nA drain:\n'
check_drain

printf '\nWhat is refused:\n'
refused 2 /models/none -e LOOKBACK_MODEL=/models/none lookback
refused 2 /models/model.safetensors -v "$work/empty:/models:ro" lookback
head -c 100000 mine.safetensors >broken.safetensors
refused 2 /models/model.safetensors -v "$work/broken.safetensors:/models/model.safetensors:ro" lookback
refused 1 'kv_memory is 1073741824 bytes' --memory 64m -e LOOKBACK_KV_MEMORY=1G lookback
refused 1 'half of the free memory is 524288 bytes' --memory 17m lookback
# A limit that the kernel does enforce, on the address space.
(ulimit -v 4000000 && refused 1 'kv_memory is 8589934592 bytes' -e LOOKBACK_KV_MEMORY=8G lookback)

printf '\nThe mounted model:\n'
docker exec lookback lookback client 127.0.0.1:50051 generate --prompt 'In the beginning' --temperature 0 --stats
docker stop -t 100 lookback
printf '\n%s passed in %d s\n' "$(basename "$0")" $((SECONDS - started))
