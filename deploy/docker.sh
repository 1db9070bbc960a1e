# shellcheck shell=bash
# `docker`, as far as README.md's container section and deploy/test_image.sh need it, made of buildah,
# unshare and chroot: for machines without a daemon. Sourced after tools/common.sh; needs root.
#
# A container has mount, PID and network name spaces of its own, in which it is process 1; the image's user,
# environment, folder and entry point; no supplementary group, capability or new privilege; a root file
# system that is read-only, whatever the flags say, and has no shell. Not as Docker does it: -p (the network holds a
# loopback device alone, clients run inside through `docker exec`), --memory (is written where a container
# reads its limit, the files of cgroup v2; nothing enforces it).

repository=$PWD
images=$repository/build/image
base=lookback-base
declare -A container_pid=() container_user=() container_job=()

buildah() {
  command buildah --storage-driver vfs --root "$images/storage" --runroot "$images/run" "$@"
}

# config IMAGE FIELD: of an image's configuration, a list one a line.
config() {
  buildah inspect --type image --format "{{range .Docker.Config.$2}}{{println .}}{{end}}" "localhost/$1" |
    sed '/^$/d'
}
config_word() {
  buildah inspect --type image --format "{{.Docker.Config.$2}}" "localhost/$1"
}

# mount_image NAME: its root file system as a folder, which root_of names.
mount_image() {
  buildah rm "$1" >/dev/null 2>&1 || true
  buildah from --pull-never --name "$1" "localhost/$1" >/dev/null
  buildah mount "$1" >"$images/$1.root"
}
root_of() { cat "$images/$1.root"; }

# docker build|run|exec|logs|kill|wait|stop …
docker() {
  local command=$1
  shift
  "docker_$command" "$@"
}

docker_build() {
  local name="" target=() folder=$PWD
  while (($# > 1)); do
    case $1 in
      -t) name=$2 ;;
      --target) target=(--target "$2") ;;
      *) die "docker build: '$1' is not simulated" ;;
    esac
    shift 2
  done
  cd "$repository"
  stage "build $name" buildah bud --isolation chroot --format docker --layers --pull-never \
    --build-arg "BASE=localhost/$base" "${target[@]}" -t "localhost/$name" .
  cd "$folder"
  mount_image "$name"
}

docker_run() {
  local name=run detach=0 user="" memory="" folder image words environment volumes=() pid_file status=0
  environment=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  local given=() network=(unshare --net)
  while [[ $1 == -* ]]; do
    case $1 in
      -d) detach=1 ;;
      --rm | --read-only) ;;
      --name) name=$2 ;;
      --network) network=(nsenter --target "${container_pid[${2#container:}]}" --net) ;;
      --user) user=$2 ;;
      --memory) memory=$(numfmt --from=iec "${2^^}") ;;
      -e) given+=("$2") ;;
      -v) volumes+=("$2") ;;
      -p) ;;
      *) die "docker run: '$1' is not simulated" ;;
    esac
    case $1 in
      -d | --rm | --read-only) shift ;;
      *) shift 2 ;;
    esac
  done
  image=$1
  shift
  mapfile -t -O 1 environment < <(config "$image" Env)
  environment+=("${given[@]}")
  if (($# == 0)); then
    mapfile -t words < <(config "$image" Cmd)
    set -- "${words[@]}"
  fi
  mapfile -t words < <(config "$image" Entrypoint)
  user=${user:-$(config_word "$image" User)}
  folder=$(config_word "$image" WorkingDir)
  pid_file=$images/$name.pid
  rm -f "$pid_file"
  local start=("${network[@]}" unshare --mount --pid --fork --kill-child bash -c "$(declare -f enter); enter \"\$@\"" enter
    "$(root_of "$image")" "$pid_file" "$user" "${folder:-/}" "$memory" "${volumes[@]}" --
    "${environment[@]}" "${words[@]}" "$@")
  if ((!detach)); then
    timeout --foreground 300 "${start[@]}" || status=$?
    return "$status"
  fi
  "${start[@]}" >"$images/$name.log" 2>&1 </dev/null &
  container_job[$name]=$!
  container_user[$name]=$user
  until [[ -s $pid_file ]]; do
    kill -0 "${container_job[$name]}" 2>/dev/null || die "docker run: $(cat "$images/$name.log")"
    sleep 0.05
  done
  container_pid[$name]=$(<"$pid_file")
}

# enter ROOT PID_FILE USER FOLDER MEMORY VOLUMES… -- ENVIRONMENT… COMMAND…: in the new name spaces, as process 1.
enter() {
  set -euo pipefail
  local root=$1 pid_file=$2 user=$3 folder=$4 memory=$5 pid volume shell
  shift 5
  read -r pid _ </proc/self/stat # of the name space that /proc was mounted in
  mount --make-rprivate /
  ip link set lo up
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  mknod -m 666 "$root/dev/null" c 1 3
  mknod -m 666 "$root/dev/urandom" c 1 9
  if [[ -n $memory ]]; then
    mount -t tmpfs -o mode=755 tmpfs "$root/sys"
    mkdir -p "$root/sys/fs/cgroup"
    echo "$memory" >"$root/sys/fs/cgroup/memory.max"
    echo 16777216 >"$root/sys/fs/cgroup/memory.current" # about what the server takes before its pool
  fi
  install -m 000 /dev/null "$root/dev/no-shell"
  for shell in bash dash; do mount --bind "$root/dev/no-shell" "$root/usr/bin/$shell"; done
  while [[ $1 != -- ]]; do
    volume=${1%:ro}
    if [[ -d ${volume%%:*} ]]; then mkdir -p "$root/${volume#*:}"; fi # as Docker does
    mount --bind "${volume%%:*}" "$root/${volume#*:}"
    if [[ $volume != "$1" ]]; then mount -o remount,bind,ro "$root/${volume#*:}"; fi
    shift
  done
  shift
  mount -o remount,bind,ro "$root"
  echo "$pid" >"$pid_file"
  exec setpriv --no-new-privs --inh-caps=-all chroot --userspec="$user" --groups= "$root" \
    /usr/bin/env -i -C "$folder" "$@"
}

docker_exec() {
  local name=$1 user=${container_user[$1]}
  shift
  nsenter --target "${container_pid[$name]}" --mount --pid --net --root --wd \
    --setuid "${user%:*}" --setgid "${user#*:}" -- /usr/bin/env -i PATH=/usr/local/bin:/usr/bin "$@"
}

docker_logs() { cat "$images/$1.log"; }
docker_kill() { kill -s "${2#SIG}" "${container_pid[$3]}"; }

# Prints the exit code.
docker_wait() {
  local status=0
  wait "${container_job[$1]}" || status=$?
  unset "container_job[$1]"
  echo "$status"
}

# docker stop -t SECONDS NAME
docker_stop() {
  local tries=$(($2 * 10))
  docker_kill --signal TERM "$3"
  until ! kill -0 "${container_job[$3]}" 2>/dev/null; do
    ((--tries > 0)) || die "docker stop: $3 has not ended after $2 s"
    sleep 0.1
  done
  docker_wait "$3" >/dev/null
}

# Ends what still runs and unmounts; the images stay, for the next time.
docker_cleanup() {
  local name
  for name in "${!container_job[@]}"; do kill -KILL "${container_pid[$name]}" 2>/dev/null || true; done
  buildah umount --all >/dev/null 2>&1 || true
  buildah rm --all >/dev/null 2>&1 || true
}
