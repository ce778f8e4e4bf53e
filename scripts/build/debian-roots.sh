# Folders of Debian packages in which the scripts for boards build and run. Other scripts source this file; it does nothing by itself.
# The folders are in the user's cache, shared by all checkouts; remove one to get newer packages. Mirror and keyring are those of this
# machine's apt sources; on another system than Debian, DEBIAN_MIRROR names a mirror.
# shellcheck shell=bash

cache=${XDG_CACHE_HOME:-$HOME/.cache}/headwater
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# Debian 12, the oldest release that the agent runs on.
release=bookworm
newest_glibc=2.36

step() { echo "$* ($SECONDS s since start)"; }
fail() { echo "$(basename "$0"): $*" >&2; exit 1; }
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

# For a Debian architecture: Rust's name, and the prefix of its C compiler's name.
rust_target() {
    case $1 in
        amd64) echo x86_64-unknown-linux-gnu ;;
        arm64) echo aarch64-unknown-linux-gnu ;;
        armhf) echo armv7-unknown-linux-gnueabihf ;;
        *) fail "expected amd64, arm64 or armhf, found $1" ;;
    esac
}
gcc_prefix() {
    case $1 in
        amd64) echo x86_64-linux-gnu ;;
        arm64) echo aarch64-linux-gnu ;;
        armhf) echo arm-linux-gnueabihf ;;
    esac
}

# Unpacks packages into a folder of the cache, unless the folder exists: `unpack NAME SUITE PACKAGES OPTIONS-OF-MMDEBSTRAP...`.
unpack() {
    local folder=$cache/$1 suite=$2 packages=$3 mirror
    shift 3
    mkdir -p "$cache"
    exec 9>"$folder.lock"
    flock 9
    if [ ! -d "$folder" ]; then
        scripts/install/debian mmdebstrap=mmdebstrap arch-test=arch-test "$keyring=debian-archive-keyring"
        mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' | awk '$1 == "Debian" && !n++ { print $2 }')}
        [ -n "$mirror" ] || fail "no Debian mirror in this machine's apt sources: name one in DEBIAN_MIRROR"
        as_root rm -rf --one-file-system "$folder.part"
        # The package lists of snapshot mirrors have expired.
        as_root mmdebstrap --quiet --include="$packages" --aptopt='Acquire::Check-Valid-Until "false"' "$@" \
            "$suite" "$folder.part" "deb [signed-by=$keyring] $mirror $suite main" || fail "could not unpack $folder"
        as_root mv "$folder.part" "$folder"
    fi
    exec 9>&-
}

# Unpacks Debian unstable's Rust for boards, and sets `rust_root`. rustup's toolchain has the standard library of this machine's
# architecture alone, Debian's has others too. The packages are not configured: compilers run without it.
unpack_rust() {
    rust_root=$cache/boards-unstable
    [ -d "$rust_root" ] && return
    step "unpacking Rust for arm64 and armhf from Debian unstable (1.9 GB)"
    local arch packages=base-files,rustc,cargo,gcc,libc6-dev
    for arch in arm64 armhf; do
        packages+=,libstd-rust-dev:$arch,gcc-$(gcc_prefix $arch),libc6-dev-$arch-cross
    done
    unpack boards-unstable sid "$packages" --variant=extract \
        --architectures="$(dpkg --print-architecture),arm64,armhf"
}

# Unpacks Debian 12 of an architecture, with the C library's headers, and sets `board_root`. The agent is linked against it and runs in it.
unpack_board() {
    board_root=$cache/$release-$1
    emulate "$1"
    [ -d "$board_root" ] && return
    step "unpacking Debian 12 for $1"
    # shellcheck disable=SC2016
    unpack "$release-$1" "$release" libc6-dev,libgcc-s1,systemd-standalone-sysusers,systemd-standalone-tmpfiles --variant=minbase \
        --architectures="$1" --customize-hook='echo "127.0.0.1 localhost" >"$1/etc/hosts"'
}

# Lets the kernel start programs of another architecture by qemu, unless it does so already. The setting lasts until the machine restarts.
emulate() {
    local rules=/proc/sys/fs/binfmt_misc rule
    case $1 in
        arm64) rule=qemu-aarch64 ;;
        armhf) rule=qemu-arm ;;
        *) return 0 ;;
    esac
    [ "$(dpkg --print-architecture)" = "$1" ] && return
    scripts/install/debian "$rule-static=qemu-user-static"
    [ -e $rules/register ] || as_root mount -t binfmt_misc binfmt_misc $rules || fail "this machine has no binfmt_misc"
    [ -e "$rules/$rule" ] || as_root cp "/usr/lib/binfmt.d/$rule.conf" $rules/register
}

# Runs a command in a folder of packages: `in_root FOLDER "FROM:TO..." NAME=VALUE... -- COMMAND...`. Each folder FROM of this machine is
# mounted as TO. The environment has only the named variables. The mounts and an empty /tmp exist for this command alone.
in_root() {
    # shellcheck disable=SC2016
    as_root unshare --mount --propagation private bash -euc '
        root=$1 chroot=$(command -v chroot) environment=()
        mount -t tmpfs tmpfs "$root/tmp"
        for bind in /dev:/dev /proc:/proc $2; do
            mkdir -p "$root${bind#*:}"
            mount --bind "${bind%%:*}" "$root${bind#*:}"
        done
        shift 2
        while [ "$1" != -- ]; do
            environment+=("$1")
            shift
        done
        shift
        exec env -i "${environment[@]}" "$chroot" "$root" "$@"' in_root "$@"
}

# Prints the newest version of the C library that a program needs, such as 2.34.
glibc_of() {
    readelf --version-info --wide "$1" | grep -oE 'GLIBC_[0-9]+(\.[0-9]+)+' | sort -uV | tail -n 1 | cut -d _ -f 2
}
