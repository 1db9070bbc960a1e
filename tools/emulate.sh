#!/usr/bin/env bash
# Runs a program on an emulated CPU, for instructions that this machine lacks (AVX-512).
#   tools/emulate.sh [--cpu MODEL] [--timeout SECONDS] [--add PATH]… BINARY [ARGUMENTS…]
# Boots Debian's Linux in Bochs, with the binary and its shared libraries in memory; prints what the
# binary prints and ends with its exit code. MODEL: of `bochs --help cpu` (tigerlake); SECONDS: of this
# machine's clock (1800); PATH: a file or folder that the binary reads, found under the same path there.
# BOCHS in the environment names another Bochs, EMULATE_KERNEL another kernel, EMULATE_APPEND more kernel
# parameters (loglevel=7 to see the boot). Instructions run some hundred times slower than here.
set -euo pipefail
export LC_ALL=C.UTF-8

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

cpu=tigerlake timeout=1800 added=()
while (($# > 0)) && [[ $1 == --* ]]; do
  (($# > 1)) || die "$1 needs a value"
  case $1 in
    --cpu) cpu=$2 ;;
    --timeout) timeout=$2 ;;
    --add) added+=("$(realpath -s -- "$2")") ;;
    *) die "unknown option $1" ;;
  esac
  shift 2
done
[[ $timeout =~ ^[1-9][0-9]*$ ]] || die "--timeout is '$timeout', expected whole seconds"
(($# > 0)) || die "no program named"
[[ -f $1 && -x $1 ]] || die "'$1' is not a program"
binary=$(realpath -- "$1")
shift

bochs=${BOCHS:-bochs-bin} # `bochs` is a wrapper that adds -q alone
kernel=${EMULATE_KERNEL:-$(find /boot -name 'vmlinuz-*-cloud-amd64' | sort -V | tail -n 1)}
boot_files=(/usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32)
bios=/usr/share/bochs/BIOS-bochs-latest vga_bios=/usr/share/vgabios/vgabios.bin
plugins=$(find /usr/lib -name libbx_term_gui.so -print -quit) # not of another Bochs, but all come together
for file in "$(command -v "$bochs")" "$plugins" "$(command -v xorriso)" "$(command -v cpio)" "$kernel" \
  /bin/busybox "$bios" "$vga_bios" "${boot_files[@]}"; do
  [[ -f $file ]] || die "needs the Debian packages bochs bochs-term bochsbios vgabios linux-image-cloud-amd64" \
    "busybox-static cpio isolinux syslinux-common xorriso"
done

work=$(mktemp -d)
emulator="" printer=""
# shellcheck disable=SC2317 # called by the trap
cleanup() {
  if [[ -n $emulator ]]; then kill "$emulator" 2>/dev/null || true; fi
  if [[ -n $printer ]]; then kill "$printer" 2>/dev/null || true; fi
  wait
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

root=$work/root iso=$work/iso
mkdir -p "$root"/{bin,dev,proc,sys,tmp} "$root$PWD" "$iso"
cp /bin/busybox "$root/bin/"
linked=$(ldd "$binary" 2>&1 || true) # fails for a static program, which needs nothing
[[ $linked != *"not found"* ]] || die "$binary: $(grep 'not found' <<<"$linked" | xargs)"
mapfile -t libraries < <(grep -o '/[^ ]* (0x' <<<"$linked" | cut -d' ' -f1)
cp -L --parents "$binary" "${libraries[@]}" "$root"
for path in "${added[@]}"; do tar -C / -c "${path#/}" | tar -C "$root" -x; done

# The exit code leaves by the second serial port, so that the first carries nothing but the output.
# stty waits for what the port has yet to send, reboot does not; printk: the reboot would be announced.
cat >"$root/init" <<END
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp TERM=dumb
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
ip link set lo up
stty -opost
stty -opost </dev/ttyS1
cd ${PWD@Q}
${binary@Q} ${@@Q}
code=\$?
stty opost
echo \$code >/dev/ttyS1
echo 0 >/proc/sys/kernel/printk
reboot -f
END
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc -R 0:0) >"$iso/initrd"

# shellcheck disable=SC2054 # the commas are the kernel's
parameters=(
  console=ttyS0,115200 loglevel=1
  # Bochs 2.7 gives wrong sizes of what these save; without XSAVE Linux would turn AVX off.
  # fsrm: Linux's memmove is wrong with FSRM where ERMS is off, and Bochs turns that off.
  clearcpuid=xsavec,xsaves,pku,ospke,fsrm,aperfmperf
  # Must agree with ips below: CPUID speaks of the real model's clock.
  tsc_early_khz=100000
  # Without ACPI, whose SMM makes Bochs 3.0 panic on some models, a triple fault ends Bochs.
  acpi=off reboot=triple
  # For the time of the boot alone.
  mitigations=off nokaslr random.trust_cpu=on audit=0 init_on_alloc=0 cryptomgr.notests
  initcall_blacklist=load_system_certificate_list,trace_eval_init,init_kprobe_trace,init_evm,init_ima
)
cp "$kernel" "$iso/linux"
cp "${boot_files[@]}" "$iso"
cat >"$iso/isolinux.cfg" <<END
default linux
prompt 0
label linux
  kernel linux
  append initrd=initrd ${parameters[*]} ${EMULATE_APPEND:-}
END
xorriso -as mkisofs -o "$work/boot.iso" -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 \
  -boot-info-table "$iso" >"$work/xorriso.log" 2>&1 || die "xorriso: $(tail -n 3 "$work/xorriso.log")"

# Guest time: 1 s for 100 million instructions, and idle time passes at once.
cat >"$work/bochsrc" <<END
config_interface: textconfig
display_library: term
romimage: file=$bios
vgaromimage: file=$vga_bios
memory: guest=1024, host=1024
cpu: model=$cpu, count=1, ips=100000000, reset_on_triple_fault=0
clock: sync=none
ata0-master: type=cdrom, path=$work/boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$work/output
com2: enabled=1, mode=file, dev=$work/code
speaker: enabled=0
log: $work/bochs.log
panic: action=fatal
error: action=ignore
info: action=ignore
END

# Of Debian's displays only `term` opens neither window nor port; script gives it the terminal it wants.
# KILL, as Bochs does not always heed TERM.
command="exec timeout --foreground --signal=KILL $timeout ${bochs@Q} -q -f ${work@Q}/bochsrc"
# Debian's Bochs 2.7 has the debugger in it, which waits for a command at the start and at the end.
help=$("$bochs" --help 2>&1 || true)
if [[ $help == *" -rc "* ]]; then
  printf 'continue\nquit\n' >"$work/commands"
  command+=" -rc ${work@Q}/commands"
fi
: >"$work/output"
TERM=vt100 SHELL=/bin/sh script -qec "$command" "$work/screen" </dev/null >/dev/null 2>&1 &
emulator=$!
tail -s 0.2 --pid="$emulator" -c +1 -f "$work/output" &
printer=$!
status=0
wait "$emulator" || status=$?
emulator=""
wait "$printer"
printer=""
code=$(tail -n 1 "$work/code" 2>/dev/null | tr -d '\r' || true)
if [[ $code =~ ^[0-9]+$ ]]; then exit "$code"; fi
if ((status == 137)); then die "no end within $timeout s"; fi
reason=$(cat "$work/bochs.log" "$work/screen" 2>/dev/null | grep -a -m 1 PANIC || true)
die "Bochs ended with exit code $status before the program did: $reason"
